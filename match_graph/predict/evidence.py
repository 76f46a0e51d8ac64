"""Token evidence for labels: leave-one-out, attention, weights of a linear classifier."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from match_graph.graph import EgoBatch
from match_graph.nn.attention import record_attention
from match_graph.predict.case_study import Evidence, WordEvidence
from match_graph.predict.classifier import Classifier
from match_graph.runs.vocabulary import ReadDocument
from match_graph.training.models import find_model
from match_graph.typing import WORD


@dataclass(frozen=True)
class Item:
    """Metadata token that was read.

    Args:
        field: Metadata field of the token.
        name: Name of the instance.
        place: Index of the token in the batch of its document.
    """

    field: str
    name: str
    place: int


@dataclass(frozen=True)
class LinearEvidence:
    """Contributions of each token to the logits of K labels by a linear classifier.

    Exact, or to first order where it clusters the labels; below scaled scores of -8 the
    calibration fades.

    Args:
        items: What each metadata token adds, [M, K]; nothing for those read as [UNK]. None where
            the classifier reads words alone.
        words: Distinct words.
        of_words: What each distinct word adds, [W, K].
    """

    items: Tensor | None
    words: list[str]
    of_words: Tensor

    def largest_words(self, place: int, number: int) -> list[WordEvidence]:
        """Words with the largest positive contributions to a label."""
        values = self.of_words[:, place].tolist()
        pairs = sorted(zip(values, self.words, strict=True), key=lambda pair: (-pair[0], pair[1]))
        return [
            WordEvidence(word=word, linear=value) for value, word in pairs[:number] if value > 0
        ]


class DocumentEvidence:
    """Model input of one document, with the evidence of its tokens.

    Args:
        classifier: Classifier of the run.
        document: Document, as `Classifier.read` gives it.
    """

    def __init__(self, classifier: Classifier, document: ReadDocument) -> None:
        self.classifier, self.document = classifier, document
        self.space = classifier.vocabulary.space
        self.batch: EgoBatch = next(classifier.batches([document]))[1]
        self.items = self._list_items()

    def score(self) -> Tensor:
        """Logits of the document, then without each of ``items``, [1 + M, L], float32.

        All of them are documents of one prediction, batched as any others. Where a document has
        more metadata than its budget, the next instance moves up when one is left out, as it would
        for the model.
        """
        variants = [self.document, *(leave_out(self.document, item) for item in self.items)]
        logits = torch.empty(len(variants), len(self.classifier.vocabulary.labels))
        for documents, found in self.classifier.score(variants):
            logits[documents] = found
        return logits

    def weigh(
        self, logits: Tensor, labels: Tensor, num_words: int
    ) -> tuple[list[list[Evidence]], list[list[WordEvidence]]]:
        """Evidence of metadata and words for some labels.

        Args:
            logits: Logits from `score`, [1 + M, L].
            labels: Label indices, [K], int64.
            num_words: Largest number of words per label.

        Returns:
            For each label, the evidence of ``items``, and the words with the largest positive
            contributions by the linear classifier; none without one.
        """
        effect = (logits[0, labels] - logits[1:, labels]).t().tolist()  # [K, M]
        attention = self.attend()
        shares = [None] * len(self.items) if attention is None else attention.tolist()
        linear = self.weigh_linear(labels)
        added: list[Any] = [[None] * len(self.items)] * len(effect)
        if linear is not None and linear.items is not None:
            added = linear.items.t().tolist()
        evidence = [
            [
                Evidence(
                    field=item.field,
                    name=item.name,
                    is_known=self.is_known(item),
                    attention=share,
                    effect=change,
                    linear=addition,
                )
                for item, share, change, addition in zip(self.items, shares, *columns, strict=True)
            ]
            for columns in zip(effect, added, strict=True)
        ]
        numbers = range(len(effect))
        words = [[] if linear is None else linear.largest_words(k, num_words) for k in numbers]
        return evidence, words

    def attend(self) -> Tensor | None:
        """Share of attention that each of ``items`` receives, [M].

        That of the document's own states in the last layer which has such, averaged over states
        and heads; words and the states themselves receive the rest. None where the encoder has no
        such layer, or reads no metadata.
        """
        network = self.classifier.network
        if network is None or not find_model(self.classifier.config).reads_metadata:
            return None
        with record_attention(network) as received:
            self.classifier.compute(self.batch)
        if not received:
            return None
        last = received[-1]  # the document's states come first, then its tokens
        places = torch.tensor([item.place for item in self.items], dtype=torch.int64)
        places += network.embedding.document is not None  # whose token comes before these
        return last.share.cpu()[last.num_queries + places]

    def weigh_linear(self, labels: Tensor) -> LinearEvidence | None:
        """Contributions of the linear classifier, if any, to calibrated logits of labels [K]."""
        linear, blend = self.classifier.linear, self.classifier.blend
        calibration = self.classifier.calibration
        if linear is None:
            return None
        token, added = linear.contributions(self.batch, labels)
        added = added if blend is None else (1 - blend.share) * added
        if calibration is not None:
            added = added * calibration.scale[labels]
        of_token = torch.zeros(self.space.num_tokens, len(labels)).index_copy_(0, token, added)
        token_id = self.batch.token_id
        items = None
        if linear.config.metadata:
            items = of_token[token_id[[item.place for item in self.items]]]
        is_word = self.batch.field == self.space.field_index(WORD)
        first = dict(zip(token_id[is_word].tolist()[::-1], self.words()[::-1], strict=True))
        rows = torch.tensor(list(first), dtype=torch.int64)
        return LinearEvidence(items, list(first.values()), of_token[rows])

    def words(self) -> list[str]:
        """Words that were read, in order."""
        number = int((self.batch.field == self.space.field_index(WORD)).sum())
        return self.classifier.vocabulary.names(self.document, WORD)[:number]

    def is_known(self, item: Item) -> bool:
        """Whether an item has a token of its own; otherwise it was read as [UNK]."""
        return int(self.batch.token_id[item.place]) != self.space.unk_id(item.field)

    def _list_items(self) -> list[Item]:
        """Metadata tokens within the budget: the first instances of each field."""
        items = []
        for field in self.classifier.vocabulary.settings.fields:
            places = (self.batch.field == self.space.field_index(field)).nonzero().view(-1)
            names = self.classifier.vocabulary.names(self.document, field)
            pairs = zip(names, places.tolist(), strict=False)
            items += [Item(field, name, place) for name, place in pairs]
        return items


def leave_out(document: ReadDocument, item: Item) -> ReadDocument:
    """Copy of a document without one metadata instance."""
    kept = [name for name in document.metadata[item.field] if name != item.name]
    return replace(document, metadata={**document.metadata, item.field: kept})


def judge(evidence: Sequence[Evidence]) -> tuple[str | None, str | None, str]:
    """Most important token by leave-one-out and by attention, and whether the two agree."""
    if not evidence:
        return None, None, "No metadata were read."
    most = max(evidence, key=lambda one: one.effect)
    carried = str(most) if most.effect > 0 else None
    looked = [one for one in evidence if one.attention is not None]
    attended = str(max(looked, key=lambda one: one.attention or 0.0)) if looked else None
    if carried is None:
        rest = f"; most attention goes to '{attended}'." if attended else "."
        return None, attended, f"Left out, no metadata token lowers the score{rest}"
    if attended is None:
        said = f"Left out, '{carried}' lowers the score most; there is no attention to compare."
    elif carried == attended:
        said = f"Leave-one-out and attention agree on '{carried}'."
    else:
        said = (
            f"Leave-one-out and attention do not agree: left out, '{carried}' lowers the score "
            f"most, while most attention goes to '{attended}'."
        )
    return carried, attended, said
