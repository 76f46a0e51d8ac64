"""Base of encoders of the words alone."""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from match_graph.config import StrictModel
from match_graph.graph import EgoBatch
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import Encoder
from match_graph.typing import WORD


class TextEncoder(Encoder):
    """Base of encoders that were made for text.

    With ``model.init=spherical``, the default, the words' vectors were pre-trained together with
    metadata, so that an encoder of words alone still owes something to them; ``spherical_text``
    pre-trains on words and labels only and is the fair choice, which the encoders' settings make.
    A wide term (``model.wide``) reads all tokens; their settings leave it out.

    Args:
        embedding: Embedding layer of the token space.
        config: Settings of the encoder.
    """

    class Config(StrictModel):
        """Settings."""

        metadata: bool = Field(
            False, description="whether to read metadata tokens too, before the words"
        )

    needs: ClassVar[frozenset[str]] = frozenset({"tokens"})
    gives: ClassVar[Literal["document", "tokens"]] = "document"

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
            batch = batch.select_tokens(batch.field == self.word_field)
        return batch, self.embedding(batch.token_id, batch.field)
