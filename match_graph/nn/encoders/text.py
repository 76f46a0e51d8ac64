"""What encoders of the words alone share: metadata are left out unless asked for."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from match_graph.config import StrictModel
from match_graph.graph import EgoBatch
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import Encoder
from match_graph.typing import WORD

#: How MATCH compared other encoders (section 4.1): delta = 100, Adam, batches of 256, neither
#: metadata nor hierarchy. It started words from GloVe; without that file they start from vectors
#: pre-trained on the training texts and their labels, never on metadata. ``--word-vectors FILE``
#: takes GloVe.
COMPARED: Mapping[str, Any] = {
    "pretrain.channels": 100,
    "model.channels": 100,
    "model.init": "spherical_text",
    "model.embedding_dropout": 0.0,
    "model.token_dropout": 0.0,
    "model.wide": False,
    "train.batch_size": 256,
    "train.optimizer": "adam",
    "train.learning_rate": 0.001,
    "train.weight_decay": 0.0,
    "train.warmup": 0.0,
    "train.calibrate": False,
    "train.lambda_parameter": 0.0,
    "train.lambda_output": 0.0,
}


class TextEncoder(Encoder):
    """Base of encoders that were made for text.

    With ``model.init=spherical``, the default, the words' vectors were pre-trained together with
    metadata, so that an encoder of words alone still owes something to them; ``spherical_text``
    pre-trains on words and labels only and is the fair choice, which the encoders' settings make.
    A wide term (``model.wide``) reads all tokens; their settings leave it out.

    Args:
        embedding: Embeds tokens.
        config: Settings.
    """

    class Config(StrictModel):
        """Settings."""

        metadata: bool = Field(False, description="also metadata tokens, before the words")

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
