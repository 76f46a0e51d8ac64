"""Latent semantic vectors of texts: truncated SVD of TF-IDF, without a language model."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from match_graph.corpus import split_words, word_pattern
from match_graph.errors import CorpusError
from match_graph.typing import Tokenizer

#: Maximum number of texts to fit, spaced evenly: their TF-IDF is held in memory.
MAX_TEXTS = 200_000
#: Texts whose TF-IDF is in memory at once.
_BLOCK = 4096


class LatentTexts:
    """Vectors of texts in the space of the largest singular values of their TF-IDF.

    Words that occur in only one text are left out. Vectors have unit length; that of a text without
    known words is 0.

    Source: Deerwester et al. 1990, https://doi.org/10.1002/(SICI)1097-4571(199009)41:6<391::AID-ASI1>3.0.CO;2-9,
    by scikit-learn's randomized SVD (Halko et al. 2011, https://arxiv.org/abs/0909.4061).

    Args:
        tokenizer: How a text becomes words.
        words: Words, V.
        idf: Inverse document frequency of each word, [V].
        components: Right singular vectors, [F, V], float32.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        words: Sequence[str],
        idf: NDArray[np.float32],
        components: NDArray[np.float32],
    ) -> None:
        self.tokenizer: Tokenizer = tokenizer
        self.words = list(words)
        self.idf, self.components = idf, components
        self._vectorizer = _make_vectorizer(tokenizer, vocabulary=self.words)
        self._vectorizer.idf_ = idf

    @classmethod
    def fit(cls, texts: Sequence[str], num_components: int, tokenizer: Tokenizer) -> "LatentTexts":
        """Fits vocabulary and components.

        Args:
            texts: Texts of training documents, or names.
            num_components: Maximum number of components F; few texts or words allow fewer.
            tokenizer: How a text becomes words.

        Raises:
            CorpusError: Fewer than two words occur in several texts.
        """
        from sklearn.utils.extmath import randomized_svd

        chosen = np.unique(np.linspace(0, max(len(texts), 1) - 1, MAX_TEXTS).astype(int))
        vectorizer = _make_vectorizer(tokenizer, min_df=2)
        try:
            if not texts:
                raise ValueError
            rows = vectorizer.fit_transform([texts[one] for one in chosen])
            number = min(num_components, *(size - 1 for size in rows.shape))
            if not number:
                raise ValueError
        except ValueError as error:
            raise CorpusError(
                f"Latent features need words that several texts share, but these {len(texts):,} "
                f"texts share less than two; take a language model or a file instead."
            ) from error
        components = randomized_svd(rows, number, random_state=0)[2].astype(np.float32)
        words = vectorizer.get_feature_names_out().tolist()
        return cls(tokenizer, words, vectorizer.idf_, components)

    @property
    def width(self) -> int:
        """Number of features F."""
        return len(self.components)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, [T, F]."""
        found = np.empty((len(texts), self.width), np.float32)
        for start in range(0, len(texts), _BLOCK):
            rows = self._vectorizer.transform(texts[start : start + _BLOCK])
            found[start : start + _BLOCK] = rows @ self.components.T
        length = np.linalg.norm(found, axis=1, keepdims=True)
        return found / np.maximum(length, np.finfo(np.float32).tiny)

    def to_tensors(self) -> dict[str, Tensor]:
        """Fitted state as tensors, for `from_tensors`."""
        about = {
            "tokenizer": self.tokenizer,
            "pattern": word_pattern(self.tokenizer),
            "words": self.words,
        }
        text = json.dumps(about, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return {
            "words": torch.from_numpy(np.frombuffer(text, np.uint8).copy()),
            "idf": torch.from_numpy(np.asarray(self.idf, np.float32)),
            "components": torch.from_numpy(self.components),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "LatentTexts":
        """Restores what `to_tensors` returned.

        Raises:
            KeyError, TypeError, ValueError: The tensors are not such.
        """
        text = tensors["words"].numpy().tobytes().decode("utf-8", "surrogatepass")
        about, idf = json.loads(text), tensors["idf"].numpy()
        components = tensors["components"].numpy()
        if idf.shape != (len(about["words"]),) or components.shape[1:] != idf.shape:
            raise ValueError("its words, factors and components are not of one number")
        if about["tokenizer"] not in get_args(Tokenizer):
            raise ValueError("it has another tokenizer")
        if about["pattern"] != word_pattern(about["tokenizer"]):  # others could backtrack forever
            raise ValueError("it has another pattern of words")
        return cls(about["tokenizer"], about["words"], idf, components)


def _make_vectorizer(tokenizer: Tokenizer, **given: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    analyzer = partial(split_words, tokenizer=tokenizer)
    return TfidfVectorizer(analyzer=analyzer, sublinear_tf=True, dtype=np.float32, **given)
