"""The contracts of encoders and heads where a class is wired: all faults at once, in sentences."""

from typing import ClassVar

import pytest
import torch

from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch, TokenSpace
from match_graph.nn import (
    ENCODERS,
    HEADS,
    Encoder,
    EncoderOutput,
    GraphEncoder,
    Head,
    LinearHead,
    TokenEmbedding,
)
from match_graph.nn.contract import (
    check_encoder_class,
    check_encoding,
    check_head_class,
    check_output,
    check_types,
    check_width,
    make_encoder,
)


class Tokens(Encoder):
    """Keeps the contract; gives tokens."""

    gives = "tokens"

    def __init__(self) -> None:
        super().__init__(TokenEmbedding(TokenSpace(("word",), (2,)), 4), self.Config())
        self.out_channels = 4

    def reset_parameters(self) -> None: ...

    def forward(self, batch):
        return EncoderOutput(None, torch.zeros(3, 4), torch.tensor([0, 1, 3]))


class Wrong(Encoder):
    """Keeps nothing of it."""

    needs: ClassVar = frozenset({"words"})
    gives: ClassVar = "labels"
    Config = dict  # type: ignore[assignment]


def test_check_encoder_class_accepts_registered_classes() -> None:
    """Registered classes and a class that gives tokens pass.

    Nothing is said.
    """
    for name, cls in ENCODERS.items():
        check_encoder_class(cls, name)
    check_encoder_class(Tokens, "x")
    encoder = Tokens()
    check_width(encoder, "x")
    check_output(encoder, encoder(None), 2, "x")


def test_check_encoder_class_all_faults_of_a_class_come_at_once() -> None:
    """Each with what was found."""
    with pytest.raises(ConfigError) as caught:
        check_encoder_class(Wrong, "my:Wrong")
    assert str(caught.value).splitlines() == [
        "The encoder 'my:Wrong' must keep the contract, but 5 faults were found:",
        "  'needs' must be a set out of ['graph', 'text', 'tokens'], found frozenset({'words'}).",
        "  'gives' must be one of ['document', 'tokens'], found 'labels'.",
        "  'Config' must be a subclass of StrictModel, found <class 'dict'>.",
        "  it must define 'forward', found none.",
        "  it must define 'reset_parameters', found none.",
    ]


@pytest.mark.parametrize("wrong", [torch.nn.Linear, "match", None])
def test_check_encoder_class_refuses_what_is_none(wrong: object) -> None:
    """Another class, a name, nothing."""
    with pytest.raises(
        ConfigError, match=r"^The encoder 'x' must be a subclass of Encoder, found "
    ):
        check_encoder_class(wrong, "x")  # type: ignore[arg-type] - the fault under test


def test_check_encoder_class_graph_encoders_make_layers() -> None:
    """A subclass without make_layer is told so before anything is built."""
    own = type("Own", (GraphEncoder,), {})
    with pytest.raises(ConfigError, match="it must define 'make_layer', found none"):
        check_encoder_class(own, "own:Own")


class WrongHead(Head):
    """Keeps nothing of it, and is made without a label graph."""

    takes: ClassVar = "words"
    Config = dict  # type: ignore[assignment]

    def __init__(self, in_channels, num_labels, config) -> None: ...


class AnyHead(LinearHead):
    """Hands on whatever it is made with."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)


def test_check_head_class_registered_and_derived_classes_pass() -> None:
    """Nothing is said; also where the constructor names no argument."""
    for name, cls in HEADS.items():
        check_head_class(cls, name)
    check_head_class(AnyHead, "my:AnyHead")


def test_check_head_class_all_faults_of_a_class_come_at_once() -> None:
    """Each with what was found."""
    with pytest.raises(ConfigError) as caught:
        check_head_class(WrongHead, "my:WrongHead")
    assert str(caught.value).splitlines() == [
        "The head 'my:WrongHead' must keep the contract, but 6 faults were found:",
        "  'takes' must be one of ['document', 'tokens'], found 'words'.",
        "  'Config' must be a subclass of StrictModel, found <class 'dict'>.",
        "  '__init__' must take (in_channels, num_labels, config, label_graph), found "
        "(in_channels, num_labels, config).",
        "  it must define 'forward', found none.",
        "  it must define 'reset_parameters', found none.",
        "  it must define 'label_weight', found none.",
    ]


def test_check_types_refuses_what_no_file_can_hold() -> None:
    """A buffer of a type that safetensors lacks is named; one that is not saved passes."""
    part = torch.nn.Module()
    part.register_buffer("index", torch.zeros(2, dtype=torch.uint16))
    part.register_buffer("phase", torch.zeros(2, dtype=torch.complex128), persistent=False)
    check_types(part, "encoder", "my:Own")
    part.register_buffer("wave", torch.zeros(2, dtype=torch.complex128))
    with pytest.raises(ConfigError) as caught:
        check_types(part, "encoder", "my:Own")
    assert str(caught.value) == (
        "The encoder 'my:Own' must keep the contract: what it saves must be of a type of "
        "safetensors, but 'wave' is torch.complex128; choose another type, or register it as a "
        "buffer with persistent=False."
    )


class Plain(Tokens):
    """Sets numbers alone, without the constructor of its base class."""

    def __init__(self, embedding, config) -> None:
        self.out_channels = 4


class Eager(Plain):
    """Makes a layer before it calls the constructor."""

    def __init__(self, embedding, config) -> None:
        self.linear = torch.nn.Linear(4, 4)
        Encoder.__init__(self, embedding, config)


class Failing(Plain):
    """Calls the constructor, and fails afterwards."""

    def __init__(self, embedding, config) -> None:
        Encoder.__init__(self, embedding, config)
        self.out_channels = config.width


class Mistaken(Plain):
    """Fails before it calls the constructor."""

    def __init__(self, embedding, config) -> None:
        width = config.width
        Encoder.__init__(self, embedding, config)
        self.out_channels = width


@pytest.mark.parametrize("cls", [Plain, Eager])
def test_make_encoder_without_the_base_constructor(cls) -> None:
    """An encoder whose constructor leaves out `super().__init__` is refused in one sentence."""
    embedding = TokenEmbedding(TokenSpace(("word",), (2,)), 4)
    with pytest.raises(ConfigError) as caught:
        make_encoder(cls, embedding, cls.Config(), "my:Own")
    assert str(caught.value) == (
        "The encoder 'my:Own' must keep the contract: __init__ must begin with "
        "super().__init__(embedding, config), but does not."
    )


@pytest.mark.parametrize("cls", [Failing, Mistaken])
def test_make_encoder_other_attribute_errors_are_its_own(cls) -> None:
    """A mistake of the constructor itself is raised as it is."""
    embedding = TokenEmbedding(TokenSpace(("word",), (2,)), 4)
    with pytest.raises(AttributeError, match="'Config' object has no attribute 'width'"):
        make_encoder(cls, embedding, cls.Config(), "my:Own")


@pytest.mark.parametrize("width", [None, 0, "4"])
def test_check_width_is_a_positive_number(width) -> None:
    """Not missing, not 0, not a string."""
    encoder = Tokens()
    encoder.out_channels = width
    with pytest.raises(ConfigError, match=f"to a positive number, found {width!r}"):
        check_width(encoder, "x")


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (EncoderOutput(None, torch.zeros(3, 5), torch.tensor([0, 1, 3])), "[3, 5]"),
        (EncoderOutput(None, torch.zeros(2, 4), torch.tensor([0, 1, 3])), "[2, 4]"),
        (EncoderOutput(torch.zeros(2, 4), None, torch.tensor([0, 1, 3])), "None"),
    ],
)
def test_check_output_states_of_another_shape_are_refused(
    output: EncoderOutput, found: str
) -> None:
    """One state for every packed token."""
    with pytest.raises(ConfigError) as caught:
        check_output(Tokens(), output, 2, "x")
    assert str(caught.value) == (
        f"The encoder 'x' must keep the contract: it gives 'tokens' with out_channels = 4, so "
        f"'states' must be [3, 4], found {found}; test it with match_graph.testing.assert_encoder."
    )


class LooksUp(Encoder):
    """Knows the documents of the graph alone."""

    def __init__(self) -> None:
        super().__init__(TokenEmbedding(TokenSpace(("word",), (2,)), 4), self.Config())
        self.out_channels = 4
        self.table = torch.nn.Embedding(3, 4)

    def reset_parameters(self) -> None: ...

    def forward(self, batch):
        return EncoderOutput(self.table(batch.document), None, batch.ptr)


def test_check_encoding_asks_for_new_documents_too() -> None:
    """What is looked up by `document` has no row for them."""
    none = torch.zeros(0, dtype=torch.int64)
    batch = EgoBatch(torch.tensor([0, 2]), none, none, none, torch.zeros(3, dtype=torch.int64))
    encoder = LooksUp()
    with pytest.raises(ConfigError) as caught:
        check_encoding(encoder, batch, "my:LooksUp")
    assert str(caught.value) == (
        "The encoder 'my:LooksUp' must keep the contract: a new document, whose 'document' is -1, "
        "must be encoded too, but that raised IndexError: index out of range in self; test it with "
        "match_graph.testing.assert_encoder."
    )
    encoder.forward = lambda batch: EncoderOutput(torch.zeros(2, 4), None, batch.ptr)
    check_encoding(encoder, batch, "my:LooksUp")
