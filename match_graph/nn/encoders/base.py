"""The encoder contract: what it needs of a batch, what it gives; the base of text encoders."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field
from torch import Tensor, nn

from match_graph.config import MAX_CHANNELS, StrictModel
from match_graph.graph import EgoBatch, NeighborhoodConfig
from match_graph.nn.embedding import TokenEmbedding
from match_graph.typing import WORD

#: Types of common settings: their bounds and, where encoders share it, their description.
Width: TypeAlias = Annotated[int, Field(ge=1, le=MAX_CHANNELS)]
NumLayers: TypeAlias = Annotated[int, Field(ge=1, le=256)]
NumTokens: TypeAlias = Annotated[int, Field(ge=1, le=1024)]
NumHeads: TypeAlias = Annotated[int, Field(ge=1, le=1024, description="number of attention heads")]
Rate: TypeAlias = Annotated[float, Field(ge=0, lt=1)]


@dataclass
class EncoderOutput:
    """States of B documents.

    Args:
        document: One state per document, [B, C]; None if the encoder gives tokens.
        states: Packed token states, [N, C]; None if the encoder gives documents.
        ptr: Offsets of ``states`` per document, [B + 1], int64.
    """

    document: Tensor | None
    states: Tensor | None
    ptr: Tensor


class Encoder(nn.Module):
    """Batches of ego-networks -> states of documents.

    A subclass is one class in one file with its `Config`. It states what it ``needs`` of a batch
    ("tokens", "graph", "text") and what it ``gives`` ("document", "tokens"); wiring checks both.
    The model owns the embedding: an encoder uses it and must not register it. It may cite its
    ``paper`` and offer ``presets`` by name: dotted keys of the whole configuration, which
    ``--preset NAME`` puts below the user's own. "paper" is that of the comparison in MATCH, "own"
    that of the encoder's own paper, or of public code of it.

    Args:
        embedding: Embedding layer of the token space.
        config: The encoder's settings.
    """

    class Config(StrictModel):
        """Settings of the encoder."""

    needs: ClassVar[frozenset[str]] = frozenset({"tokens"})
    gives: ClassVar[Literal["document", "tokens"]] = "document"
    paper: ClassVar[str] = ""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    out_channels: int

    def __init__(self, embedding: TokenEmbedding, config: StrictModel) -> None:
        super().__init__()
        self._embedding = [embedding]  # in a list, so that it is not registered twice
        self.config = config

    @property
    def embedding(self) -> TokenEmbedding:
        """The model's embedding layer."""
        return self._embedding[0]

    @classmethod
    def neighborhood(cls, config: StrictModel) -> NeighborhoodConfig | None:
        """The multi-hop neighbourhoods to sample for it.

        With None an encoder that needs the graph gets the documents' own metadata and words.
        """
        return None

    def reset_parameters(self) -> None:
        """Reinitializes every parameter except those of the embedding."""
        raise NotImplementedError

    @property
    def rate_factors(self) -> Mapping[str, float]:
        """Prefix of parameter names -> factor of their learning rate; 1 for all others."""
        return {}

    @classmethod
    def hash_files(cls, config: StrictModel) -> dict[str, str]:
        """Checksums of the files that settings name, by setting; missing files are left out.

        Args:
            config: The encoder's settings.
        """
        return {}

    def save_files(self, folder: Path) -> None:
        """Writes files that the constructor needs and a run must keep; by default none.

        Args:
            folder: Empty folder, the encoder's own.
        """

    @classmethod
    def kept_settings(cls, folder: Path) -> dict[str, Any]:
        """Settings by which the constructor reads what `save_files` wrote, in place of the run's.

        Args:
            folder: Folder of `save_files`.
        """
        return {}

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """The states of a batch.

        ``batch.document`` is a row of the built graph, or -1 for a new document, which must get a
        state too.
        """
        raise NotImplementedError


class TextEncoder(Encoder):
    """Base of text encoders.

    With ``model.init=spherical``, the default, word vectors are pre-trained together with metadata,
    so that even an encoder of words alone benefits from metadata; ``spherical_text`` pre-trains on
    words and labels only and is the fair choice, which the encoders' presets make. In a blend
    (``model.blend``) the linear classifier leaves metadata out too.
    """

    class Config(StrictModel):
        """Settings."""

        metadata: bool = Field(
            False, description="whether to read metadata tokens too, before the words"
        )

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.metadata = config.metadata
        self.word_field = embedding.space.field_index(WORD)

    def embed(self, batch: EgoBatch) -> tuple[EgoBatch, Tensor]:
        """The batch as the encoder reads it, without metadata unless asked for.

        Returns:
            The batch of N tokens, and their vectors [N, C].
        """
        if not self.metadata:
            of_features = batch.field == self.embedding.space.document_field
            batch = batch.select_tokens(of_features | (batch.field == self.word_field))
        return batch, self.embedding(batch)
