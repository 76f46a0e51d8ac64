"""`assert_encoder` passes sound encoders and names each fault of broken ones."""

import re
from typing import Any, ClassVar

import pytest
import torch
from pydantic import Field
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GATv2Conv, HeteroConv, MessagePassing, TransformerConv

from match_graph.config import StrictModel
from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch
from match_graph.graph.csr import row_index
from match_graph.nn import Encoder, EncoderOutput, GraphEncoder, MatchEncoder, TokenEmbedding
from match_graph.testing import assert_encoder


class Sound(Encoder):
    """The sum of a document's embedded tokens, through one layer."""

    class Config(StrictModel):
        out_channels: int = Field(6, ge=1)

    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        super().__init__(embedding, config)
        self.out_channels = config.out_channels
        self.linear = nn.Linear(embedding.channels, config.out_channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def pool(self, batch: EgoBatch) -> Tensor:
        embedded = self.embedding(batch)
        zeros = embedded.new_zeros(batch.num_documents, embedded.size(1))
        return zeros.index_add(0, row_index(batch.ptr), embedded)

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        return EncoderOutput(self.linear(self.pool(batch)), None, batch.ptr)


class SoundTokens(Sound):
    """One state per token."""

    gives = "tokens"

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        states = self.linear(self.embedding(batch))
        return EncoderOutput(None, states, batch.ptr)


class SoundGraph(Sound):
    """Also reads the sampled subgraph and the texts."""

    needs = frozenset({"tokens", "graph", "text"})

    def pool(self, batch: EgoBatch) -> Tensor:
        assert batch.graph is not None and batch.text is not None
        assert batch.graph["document"].num_nodes == len(batch.text) == batch.num_documents
        lengths = torch.tensor([[float(len(text))] for text in batch.text])
        return super().pool(batch) + lengths


class Unused(Sound):
    """An encoder that declares an unused parameter."""

    unused_parameters: ClassVar[frozenset[str]] = frozenset({"spare"})

    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        super().__init__(embedding, config)
        self.spare = nn.Parameter(torch.zeros(2))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, "spare"):
            nn.init.zeros_(self.spare)


class UnusedNotSaid(Unused):
    unused_parameters = frozenset()


class UnusedMisspelt(Sound):
    unused_parameters: ClassVar[frozenset[str]] = frozenset({"spear"})


class LooksUp(Sound):
    """An encoder that looks up documents of the graph, and nothing for a new one."""

    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        super().__init__(embedding, config)
        table = torch.randn(12, embedding.channels, generator=torch.Generator().manual_seed(0))
        self.register_buffer("table", table)

    def pool(self, batch: EgoBatch) -> Tensor:
        known = (batch.document >= 0).unsqueeze(1)
        return super().pool(batch) + torch.where(known, self.table[batch.document], 0)


class Gat(GraphEncoder):
    """Attention over neighbours, by edge type."""

    def make_layer(self, config: Any, edge_types: list[Any]) -> nn.Module:
        return HeteroConv({edge_type: self.make_conv(config.channels) for edge_type in edge_types})

    def make_conv(self, channels: int) -> MessagePassing:
        return GATConv(channels, channels, heads=2, concat=False, add_self_loops=False)


class Gatv2(Gat):
    def make_conv(self, channels: int) -> MessagePassing:
        return GATv2Conv(channels, channels, heads=2, concat=False, add_self_loops=False)


class DotProduct(Gat):
    def make_conv(self, channels: int) -> MessagePassing:
        return TransformerConv(channels, channels, heads=2, concat=False)


class AttendsToEachAlone(Sound):
    """A softmax over the wrong dimension: every weight is 1."""

    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        super().__init__(embedding, config)
        self.query = nn.Parameter(torch.randn(embedding.channels))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, "query"):
            nn.init.normal_(self.query)

    def pool(self, batch: EgoBatch) -> Tensor:
        embedded = self.embedding(batch)
        weight = torch.softmax((embedded @ self.query).unsqueeze(1), dim=1)
        zeros = embedded.new_zeros(batch.num_documents, embedded.size(1))
        return zeros.index_add(0, row_index(batch.ptr), weight * embedded)


class LooksUpTheLast(LooksUp):
    def pool(self, batch: EgoBatch) -> Tensor:
        return Sound.pool(self, batch) + self.table[batch.document]


class LooksUpTheKnown(LooksUp):
    def pool(self, batch: EgoBatch) -> Tensor:
        return Sound.pool(self, batch) + nn.functional.embedding(batch.document, self.table)


class WrongWidth(Sound):
    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        super().__init__(embedding, config)
        self.out_channels = 7


class GivesBoth(Sound):
    def forward(self, batch: EgoBatch) -> EncoderOutput:
        document = self.linear(self.pool(batch))
        return EncoderOutput(document, document, batch.ptr)


class GivesTensor(Sound):
    def forward(self, batch: EgoBatch) -> Any:
        return self.linear(self.pool(batch))


class Raises(Sound):
    def forward(self, batch: EgoBatch) -> EncoderOutput:
        raise ValueError("no such luck")


class RegistersEmbedding(Sound):
    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        super().__init__(embedding, config)
        self.twice = embedding


class RegistersWeight(Sound):
    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        super().__init__(embedding, config)
        self.twice = embedding.weight


class FailsOnEmpty(Sound):
    def forward(self, batch: EgoBatch) -> EncoderOutput:
        parts = batch.ptr.diff().tolist()
        states = self.embedding(batch).split(parts)
        largest = torch.stack([part.max(dim=0).values for part in states])
        return EncoderOutput(self.linear(largest), None, batch.ptr)


class NotFiniteOnEmpty(Sound):
    def pool(self, batch: EgoBatch) -> Tensor:
        return super().pool(batch) / batch.ptr.diff().unsqueeze(1)


class Random(Sound):
    def pool(self, batch: EgoBatch) -> Tensor:
        return nn.functional.dropout(super().pool(batch), 0.5, training=True)


class Leaks(Sound):
    def pool(self, batch: EgoBatch) -> Tensor:
        pooled = super().pool(batch)
        return pooled + pooled.mean(dim=0)


class Numbers(Sound):
    def pool(self, batch: EgoBatch) -> Tensor:
        return super().pool(batch) + torch.arange(batch.num_documents).unsqueeze(1)


class Truncates(SoundTokens):
    def forward(self, batch: EgoBatch) -> EncoderOutput:
        output = super().forward(batch)
        if batch.num_documents > 1 and batch.token_id.numel():
            ptr = output.ptr.clone()
            ptr[1:] -= 1
            return EncoderOutput(None, output.states[1:], ptr)
        return output


class Detaches(Sound):
    def pool(self, batch: EgoBatch) -> Tensor:
        return super().pool(batch).detach()


class NoGradient(Sound):
    def forward(self, batch: EgoBatch) -> EncoderOutput:
        with torch.no_grad():
            return super().forward(batch)


class ResetsHalf(Sound):
    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.linear.weight)


class ResetsUnseeded(Sound):
    def reset_parameters(self) -> None:
        super().reset_parameters()
        with torch.no_grad():
            self.linear.weight.uniform_(generator=GENERATOR)


class ResetsEmbedding(Sound):
    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.embedding.reset_parameters()


class HidesState(Sound):
    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        super().__init__(embedding, config)
        self.hidden = torch.randn(embedding.channels)

    def pool(self, batch: EgoBatch) -> Tensor:
        return super().pool(batch) + self.hidden


class LoadsNothing(Sound):
    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        super().__init__(embedding, config)
        self.register_buffer("size", torch.zeros(int(torch.randint(2, 10**9, ()).item()) % 97 + 2))


GENERATOR = torch.Generator()

BROKEN = [
    (
        WrongWidth,
        "WrongWidth gives document with out_channels = 7, so the output for a batch must hold "
        "[12, 7] and nothing else, found document [12, 6] and states None.",
    ),
    (
        GivesBoth,
        "GivesBoth gives document with out_channels = 6, so the output for a batch must hold "
        "[12, 6] and nothing else, found document [12, 6] and states [12, 6].",
    ),
    (GivesTensor, "GivesTensor must give an EncoderOutput, found Tensor."),
    (Raises, "Raises must encode a batch, but raised ValueError: no such luck"),
    (
        RegistersEmbedding,
        "RegistersEmbedding must not register the embedding, which the model owns; "
        "use self.embedding.",
    ),
    (
        RegistersWeight,
        "RegistersWeight must not register the embedding, which the model owns; "
        "use self.embedding.",
    ),
    (
        FailsOnEmpty,
        "FailsOnEmpty must encode documents without tokens, but raised IndexError: "
        "max(): Expected reduction dim 0 to have non-zero size.",
    ),
    (
        NotFiniteOnEmpty,
        "NotFiniteOnEmpty must give finite states, found others for documents without tokens.",
    ),
    (
        LooksUpTheLast,
        "LooksUpTheLast must know a new document, whose 'document' is -1, from the last one of the "
        "graph, but gives both the same states; -1 as an index is the last row.",
    ),
    (
        LooksUpTheKnown,
        "LooksUpTheKnown must encode documents whose 'document' is -1 (new), but raised "
        "IndexError: index out of range in self",
    ),
    (
        AttendsToEachAlone,
        "AttendsToEachAlone must pass a gradient to every parameter, found none for ['query']; "
        "name what is not used in unused_parameters.",
    ),
    (
        Random,
        "Random must be deterministic in evaluation mode, but document 0 differs by NUMBER.",
    ),
    (
        Leaks,
        "Leaks must give a document the same state alone and in a batch, "
        "but document 0 differs by NUMBER.",
    ),
    (
        Truncates,
        "Truncates must give a document the same state alone and in a batch, "
        "but document 0 has states [NUMBER, 6] and [NUMBER, 6].",
    ),
    (
        Detaches,
        "Detaches must pass a gradient to every parameter, found none for ['embedding.weight']; "
        "name what is not used in unused_parameters.",
    ),
    (
        NoGradient,
        "NoGradient must pass a gradient to every parameter, found none for "
        "['linear.weight', 'linear.bias', 'embedding.weight']; "
        "name what is not used in unused_parameters.",
    ),
    (
        UnusedNotSaid,
        "UnusedNotSaid must pass a gradient to every parameter, found none for ['spare']; "
        "name what is not used in unused_parameters.",
    ),
    (
        UnusedMisspelt,
        "UnusedMisspelt.unused_parameters must name parameters, found ['spear']; "
        "there are ['embedding.weight', 'linear.bias', 'linear.weight'].",
    ),
    (
        ResetsHalf,
        "ResetsHalf.reset_parameters must draw every parameter anew, "
        "but leaves 'linear.bias' as it was.",
    ),
    (
        ResetsUnseeded,
        "ResetsUnseeded.reset_parameters must be reproducible by torch.manual_seed, "
        "but draws 'linear.weight' differently.",
    ),
    (
        ResetsEmbedding,
        "ResetsEmbedding.reset_parameters must leave the embedding, which the model owns, alone.",
    ),
    (
        HidesState,
        "HidesState must have all that it computes with in state_dict, "
        "but document 0 differs by NUMBER.",
    ),
]


@pytest.mark.parametrize("encoder_cls", [Sound, SoundTokens, SoundGraph, Unused, LooksUp])
def test_assert_encoder_sound_encoder_passes(encoder_cls: type[Encoder]) -> None:
    """Sound encoders of documents, tokens, graphs and texts pass."""
    assert_encoder(encoder_cls)


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("encoder_cls", [Gat, Gatv2, DotProduct])
def test_assert_encoder_attention_to_neighbours_passes(
    encoder_cls: type[Encoder], num_layers: int
) -> None:
    """Attention, which has no gradient over a single neighbour, passes."""
    assert_encoder(encoder_cls, {"num_layers": num_layers, "channels": 8})


@pytest.mark.parametrize(
    "config", [{"num_cls": 2, "num_layers": 1}, MatchEncoder.Config(num_cls=1, num_layers=2)]
)
def test_assert_encoder_settings_are_given_as_keys_or_as_config(config: Any) -> None:
    """Settings are keys or a Config; the paper's encoder passes in other sizes."""
    assert_encoder(MatchEncoder, config, channels=6)


def test_assert_encoder_settings_are_checked() -> None:
    """Wrong settings raise a ConfigError, not an AssertionError."""
    with pytest.raises(ConfigError) as error:
        assert_encoder(Sound, {"width": 3})
    assert str(error.value) == (
        "config must be valid: 'width' is not a setting; choose from ['out_channels']."
    )


@pytest.mark.parametrize(("encoder_cls", "message"), BROKEN, ids=lambda value: str(value)[-20:])
def test_assert_encoder_broken_encoder_is_named_with_its_fault(
    encoder_cls: type[Encoder], message: str
) -> None:
    """Each broken encoder fails one check, with its whole sentence."""
    pattern = re.escape(message).replace("NUMBER", r"[0-9.e+-]+")
    with pytest.raises(AssertionError) as error:
        assert_encoder(encoder_cls)
    assert re.fullmatch(pattern, str(error.value)), str(error.value)


def test_assert_encoder_state_dict_that_does_not_load_is_named() -> None:
    """A state_dict whose shapes change is named."""
    with pytest.raises(AssertionError) as error:
        assert_encoder(LoadsNothing)
    start = "LoadsNothing must load its own state_dict, but: Error(s) in loading state_dict for "
    assert str(error.value).startswith(start)


def test_assert_encoder_independence_is_left_out_on_request() -> None:
    """With independent=False a state may depend on the other documents, not their order."""
    assert_encoder(Leaks, independent=False)
    with pytest.raises(AssertionError) as error:
        assert_encoder(Numbers, independent=False)
    assert re.fullmatch(
        r"Numbers must follow a permutation of the batch, but document \d+ differs by [0-9.]+\.",
        str(error.value),
    )


def test_assert_encoder_random_state_of_the_caller_is_kept() -> None:
    """The caller's random state is restored."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert_encoder(Sound)
    assert torch.equal(torch.rand(3), expected)


class WithoutReset(Sound):
    """An encoder that inherits `reset_parameters`, which only raises."""

    reset_parameters = Encoder.reset_parameters


class WithoutWidth(Sound):
    """An encoder without out_channels."""

    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        super().__init__(embedding, config)
        del self.out_channels


class WithoutSuper(Sound):
    """An encoder that does not call the constructor of its base class."""

    def __init__(self, embedding: TokenEmbedding, config: Any) -> None:
        self.out_channels = 6
        self.linear = nn.Linear(embedding.channels, 6)


@pytest.mark.parametrize(
    ("encoder_cls", "fault"),
    [
        (WithoutReset, "it must define 'reset_parameters', found none."),
        (WithoutWidth, "'out_channels' must be set in __init__ to a positive number, found None."),
        (
            WithoutSuper,
            "__init__ must begin with super().__init__(embedding, config), but does not.",
        ),
    ],
)
def test_assert_encoder_missing_part_is_one_sentence(encoder_cls: type, fault: str) -> None:
    """A missing part is refused in the sentence of a run."""
    with pytest.raises(AssertionError) as caught:
        assert_encoder(encoder_cls)
    sentence = " ".join(str(caught.value).split())
    start = f"The encoder '{encoder_cls.__name__}' must keep the contract"
    assert sentence.startswith(start)
    assert sentence.endswith(fault)
