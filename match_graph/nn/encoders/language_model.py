"""A pre-trained language model over the raw text, with metadata as added tokens."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor, nn

from match_graph.config import StrictModel
from match_graph.errors import ConfigError, import_extra
from match_graph.features.sentence_model import (
    compute_model_digest,
    find_max_positions,
    quiet_transformers,
)
from match_graph.graph import EgoBatch
from match_graph.graph.csr import make_ptr, ragged_arange, row_index
from match_graph.io.source import is_folder
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import Encoder, EncoderOutput
from match_graph.typing import WORD


class LanguageModelEncoder(Encoder):
    """The state of a pre-trained Transformer's first token, or the mean of its tokens.

    Any checkpoint that ``AutoModel`` of Hugging Face transformers reads and that is no
    encoder-decoder, by folder or by its name on the hub. Only safetensors are read, and no code of
    a checkpoint is run. A run keeps configuration and tokenizer in its folder, and the weights with
    its own, so that prediction needs neither checkpoint nor network.

    The text is read as it is, by the checkpoint's own tokenizer. Metadata stand behind it: their
    rows of the model's embedding, which may be pre-trained on the sphere, mapped by one linear
    layer to the width of the language model and, at the start, to the scale of its word pieces.
    They take the positions after the text's, so that pieces keep those that they were pre-trained
    at; metadata beyond the last position are left out. Rows of words are not read.

    Source of fine-tuning with a small learning rate and the first token: Devlin et al. 2019,
    https://arxiv.org/abs/1810.04805; metadata as tokens: section 3.2 of MATCH,
    https://arxiv.org/abs/2102.07349.

    Raises:
        ConfigError: transformers is not installed, the checkpoint cannot be read, it has fewer
            positions than ``max_pieces``, or its first piece knows no other.
    """

    class Config(StrictModel):
        """Settings."""

        checkpoint: str = Field(
            "", description="folder of a checkpoint, or a model's name on the hub"
        )
        pretrained: bool = Field(
            True, description="whether to load the weights; false draws them anew"
        )
        metadata: bool = Field(True, description="whether metadata follow the text")
        max_pieces: int = Field(
            256,
            ge=2,
            le=2**16,
            description="maximum number of pieces of a text, special tokens included",
        )
        pooling: Literal["first", "mean"] = Field(
            "first", description="document state: the first piece's, or the mean over pieces"
        )
        rate_factor: float = Field(
            0.03, gt=0, le=1, description="learning rate of the checkpoint's weights, as a factor"
        )

    needs: ClassVar[frozenset[str]] = frozenset({"text", "tokens"})
    paper: ClassVar[str] = "Devlin et al., NAACL 2019, https://arxiv.org/abs/1810.04805"
    config: Config

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.tokenizer = self._read("tokenizer")
        self.language_model: nn.Module = self._read("model")
        self.max_positions = find_max_positions(self.language_model, self.tokenizer)
        if config.max_pieces > self.max_positions:
            raise ConfigError(
                f"max_pieces must be at most the positions of '{config.checkpoint}', found "
                f"{config.max_pieces} and {self.max_positions}; lower "
                f"model.encoder_config.max_pieces."
            )
        self.word_field = embedding.space.field_index(WORD)
        settings: Any = self.language_model.config
        self._check_pooling(settings.model_type)
        self.out_channels = int(settings.hidden_size)  # ALBERT's and ELECTRA's pieces are narrower
        self.project: nn.Linear | None = None
        if config.metadata or embedding.document is not None:
            self.project = nn.Linear(embedding.channels, int(self._pieces.weight.size(1)))
            self._reset_projection()

    def _check_pooling(self, kind: str) -> None:
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        )

        is_masked = kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES
        is_causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not is_masked
        if self.config.pooling == "first" and is_causal:
            raise ConfigError(
                f"With pooling=first a language model must read in both directions, but "
                f"'{self.config.checkpoint}' ({kind}) reads from left to right, so that its first "
                f"piece knows no other; set model.encoder_config.pooling=mean."
            )

    @property
    def rate_factors(self) -> Mapping[str, float]:
        return {"language_model.": self.config.rate_factor}

    @property
    def _pieces(self) -> nn.Embedding:
        table: nn.Embedding = self.language_model.get_input_embeddings()  # type: ignore[operator]
        return table

    def reset_parameters(self) -> None:
        """Reloads the checkpoint's weights, or reinitializes them, and the projection."""
        self.language_model.load_state_dict(self._read("model").state_dict())
        self._reset_projection()

    def _reset_projection(self) -> None:
        if self.project is not None:
            scale = float(self._pieces.weight.detach().std())
            nn.init.normal_(self.project.weight, std=scale / self.project.in_features**0.5)
            nn.init.zeros_(self.project.bias)

    def _read(self, part: Literal["tokenizer", "model"]) -> Any:
        transformers = import_extra("transformers", "The encoder 'language_model'", "lm")
        name, safe = self.config.checkpoint, {"trust_remote_code": False}
        if not name:
            raise ConfigError(
                "The encoder 'language_model' needs a checkpoint, found none; set "
                "model.encoder_config.checkpoint to a folder, or to a model's name on the hub such "
                "as distilbert-base-uncased."
            )
        try:
            with quiet_transformers():
                if part == "tokenizer":
                    return transformers.AutoTokenizer.from_pretrained(name, **safe)
                settings = transformers.AutoConfig.from_pretrained(name, **safe)
                if settings.is_encoder_decoder:
                    raise ValueError("it is an encoder-decoder")
                if not self.config.pretrained:
                    model = transformers.AutoModel.from_config(settings, **safe)
                else:
                    model = transformers.AutoModel.from_pretrained(
                        name, use_safetensors=True, dtype=torch.float32, **safe
                    )
        except (
            OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError
        ) as error:  # fmt: skip
            raise ConfigError(
                f"A language model must be a checkpoint that transformers can read from "
                f"safetensors without code of its own, but '{name}' is not "
                f"({' '.join(str(error).split())}); check model.encoder_config.checkpoint."
            ) from error
        if hasattr(model, "pooler"):
            model.pooler = None  # not read
        return model

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, C]."""
        vectors, lengths = self._embed(batch)  # [N, E], [B]
        ptr = make_ptr(lengths)
        row, column = row_index(ptr), ragged_arange(torch.zeros_like(lengths), lengths)
        longest = max(int(lengths.max()), 1)
        mask = torch.arange(longest, device=lengths.device) < lengths.clamp(min=1).unsqueeze(1)
        padded = vectors.new_zeros(len(lengths), longest, vectors.size(1))
        padded = padded.index_put((row, column), vectors)  # [B, T, E]
        output = self.language_model(inputs_embeds=padded, attention_mask=mask.long())
        states: Tensor = output.last_hidden_state  # [B, T, C]
        if self.config.pooling == "first":
            document = states[:, 0]
        else:
            share = mask.to(states.dtype) / mask.sum(dim=1, keepdim=True)
            document = torch.einsum("bt,btc->bc", share, states)
        return EncoderOutput(document, None, ptr)

    def _embed(self, batch: EgoBatch) -> tuple[Tensor, Tensor]:
        """Word pieces, then metadata of each document, packed [N, E], and their number, [B]."""
        assert batch.text is not None
        pieces = self.tokenizer(batch.text, truncation=True, max_length=self.config.max_pieces)
        ids: list[list[int]] = pieces["input_ids"]
        device = self._pieces.weight.device
        num_pieces = torch.tensor([len(one) for one in ids], device=device)
        flat = torch.tensor([piece for one in ids for piece in one], device=device).long()
        text = self._pieces(flat)  # [pieces, E]
        if self.project is None:
            return text, num_pieces
        of_features = batch.field == self.embedding.space.document_field
        read = batch.field != self.word_field if self.config.metadata else of_features
        batch = batch.select_tokens(read)
        rank = ragged_arange(torch.zeros_like(batch.ptr[:-1]), batch.ptr.diff())
        batch = batch.select_tokens(rank < (self.max_positions - num_pieces)[row_index(batch.ptr)])
        metadata = self.project(self.embedding(batch))  # [M, E]
        num_metadata = batch.ptr.diff()
        lengths = num_pieces + num_metadata
        start = make_ptr(lengths)[:-1]
        order = torch.cat(
            [ragged_arange(start, num_pieces), ragged_arange(start + num_pieces, num_metadata)]
        )
        joined = torch.cat([text, metadata.to(text.dtype)])
        return torch.empty_like(joined).index_copy(0, order, joined), lengths

    @classmethod
    def hash_files(cls, config: StrictModel) -> dict[str, str]:
        """Checksum of a checkpoint in a folder; a model of the hub is known by its name."""
        assert isinstance(config, LanguageModelEncoder.Config)
        is_here = bool(config.checkpoint) and is_folder(config.checkpoint)
        return {"checkpoint": compute_model_digest(Path(config.checkpoint))} if is_here else {}

    def save_files(self, folder: Path) -> None:
        """Writes configuration and tokenizer; the weights are the run's."""
        self.language_model.config.save_pretrained(folder)  # type: ignore[union-attr, operator]
        self.tokenizer.save_pretrained(folder)

    @classmethod
    def kept_settings(cls, folder: Path) -> dict[str, Any]:
        return {"checkpoint": str(folder), "pretrained": False}
