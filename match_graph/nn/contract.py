"""Checks of the contracts of encoders and heads at wiring time."""

import inspect
from collections.abc import Sequence

import torch
from torch import nn

from match_graph.config import StrictModel
from match_graph.errors import ConfigError, list_faults
from match_graph.graph import EgoBatch
from match_graph.io.weights import TYPES
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders import Encoder, EncoderOutput, GraphEncoder
from match_graph.nn.heads import Head

NEEDS = frozenset({"tokens", "graph", "text"})
GIVES = ("document", "tokens")
_HEAD_ARGUMENTS = ("in_channels", "num_labels", "config", "label_graph")


def check_encoder_class(cls: type[Encoder], name: str) -> None:
    """Checks what an encoder's class states.

    Args:
        cls: Encoder class.
        name: Name of the encoder as in ``model.encoder``, for the message.

    Raises:
        ConfigError: With every fault.
    """
    if not (isinstance(cls, type) and issubclass(cls, Encoder)):
        raise ConfigError(f"The encoder '{name}' must be a subclass of Encoder, found {cls!r}.")
    faults = []
    if not (isinstance(cls.needs, frozenset | set) and cls.needs <= NEEDS):
        faults.append(f"'needs' must be a set out of {sorted(NEEDS)}, found {cls.needs!r}.")
    if cls.gives not in GIVES:
        faults.append(f"'gives' must be one of {list(GIVES)}, found {cls.gives!r}.")
    faults += _find_config_faults(cls.Config)
    faults += _find_missing(cls, Encoder, ("forward", "reset_parameters"))
    if issubclass(cls, GraphEncoder):
        faults += _find_missing(cls, GraphEncoder, ("make_layer",))
    if faults:
        raise ConfigError(list_faults(f"The encoder '{name}' must keep the contract", faults))


def check_head_class(cls: type[Head], name: str) -> None:
    """Checks what a head's class states, and that it is made as heads are.

    Args:
        cls: Head class.
        name: Name of the head as in ``model.head``, for the message.

    Raises:
        ConfigError: With every fault.
    """
    faults = []
    if cls.takes not in GIVES:
        faults.append(f"'takes' must be one of {list(GIVES)}, found {cls.takes!r}.")
    faults += _find_config_faults(cls.Config)
    signature = inspect.signature(cls)
    try:
        signature.bind(*_HEAD_ARGUMENTS)
    except TypeError:
        faults.append(
            f"'__init__' must take ({', '.join(_HEAD_ARGUMENTS)}), found "
            f"({', '.join(signature.parameters)})."
        )
    faults += _find_missing(cls, Head, ("forward", "reset_parameters", "label_weight"))
    if faults:
        raise ConfigError(list_faults(f"The head '{name}' must keep the contract", faults))


def _find_config_faults(config: object) -> list[str]:
    if isinstance(config, type) and issubclass(config, StrictModel):
        return []
    return [f"'Config' must be a subclass of StrictModel, found {config!r}."]


def _find_missing(cls: type[nn.Module], base: type[nn.Module], methods: Sequence[str]) -> list[str]:
    """A fault for each method that a class takes from its base, where it only raises."""
    return [
        f"it must define '{method}', found none."
        for method in methods
        if getattr(cls, method) is getattr(base, method)
    ]


def check_types(part: nn.Module, kind: str, name: str) -> None:
    """Checks that the weights of an encoder or a head can be written.

    Args:
        part: Encoder or head.
        kind: Which of both, for the message.
        name: Its name as in ``model.encoder`` or ``model.head``, for the message.

    Raises:
        ConfigError: They cannot.
    """
    for key, value in part.state_dict().items():
        dtype = getattr(value, "dtype", type(value))
        if dtype not in TYPES:
            raise ConfigError(
                f"The {kind} '{name}' must keep the contract: what it saves must be of a type of "
                f"safetensors, but '{key}' is {dtype}; choose another type, or register it as a "
                f"buffer with persistent=False."
            )


def make_encoder(
    cls: type[Encoder], embedding: TokenEmbedding, config: StrictModel, name: str
) -> Encoder:
    """Makes an encoder and checks what its constructor sets.

    Args:
        cls: Encoder class.
        embedding: Embedding layer of the token space.
        config: The encoder's settings.
        name: Name of the encoder as in ``model.encoder``, for the message.

    Raises:
        ConfigError: The constructor does not call that of `Encoder`, or sets no width.
    """
    encoder = cls.__new__(cls)  # made before it is initialized, to see how far that came
    cause = None
    try:
        encoder.__init__(embedding, config)  # type: ignore[misc]  # by name, as it is made already
    except AttributeError as error:
        # nn.Module names no object where its constructor was not called
        is_own = error.obj is None or error.obj is encoder
        if "_embedding" in vars(encoder) or not is_own:
            raise
        cause = error
    if "_embedding" not in vars(encoder):
        raise ConfigError(
            f"The encoder '{name}' must keep the contract: __init__ must begin with "
            f"super().__init__(embedding, config), but does not."
        ) from cause
    check_width(encoder, name)
    return encoder


def check_width(encoder: Encoder, name: str) -> None:
    """Checks that an encoder states the width of its states.

    Raises:
        ConfigError: It does not.
    """
    width = getattr(encoder, "out_channels", None)
    if not isinstance(width, int) or width < 1:
        raise ConfigError(
            f"The encoder '{name}' must keep the contract: 'out_channels' must be set in __init__ "
            f"to a positive number, found {width!r}."
        )


def check_output(encoder: Encoder, output: object, num_documents: int, name: str) -> None:
    """Checks that an encoder gives what its class states.

    Args:
        encoder: Encoder, which states ``gives`` and ``out_channels``.
        output: Output of the encoder for a batch.
        num_documents: Number of documents of the batch.
        name: Name of the encoder as in ``model.encoder``, for the message.

    Raises:
        ConfigError: It gives something else.
    """
    width = encoder.out_channels
    if not isinstance(output, EncoderOutput):
        raise ConfigError(
            f"The encoder '{name}' must keep the contract: forward must give an EncoderOutput, "
            f"found {type(output).__name__}."
        )
    if encoder.gives == "document":
        states, length = output.document, num_documents
    else:
        states, length = output.states, int(output.ptr[-1])
    found = None if states is None else list(states.shape)
    if found != [length, width]:
        part = "document" if encoder.gives == "document" else "states"
        raise ConfigError(
            f"The encoder '{name}' must keep the contract: it gives '{encoder.gives}' with "
            f"out_channels = {width}, so '{part}' must be {[length, width]}, found {found}; test "
            f"it with match_graph.testing.assert_encoder."
        )


@torch.no_grad()
def check_encoding(encoder: Encoder, batch: EgoBatch, name: str) -> None:
    """Checks what an encoder gives for documents of the graph, and for new ones.

    Args:
        encoder: Encoder in evaluation mode.
        batch: Batch of documents of the graph.
        name: Name of the encoder as in ``model.encoder``, for the message.

    Raises:
        ConfigError: It gives something else than its class states, or cannot encode a new document.
    """
    check_output(encoder, encoder(batch), batch.num_documents, name)
    try:
        output = encoder(batch.as_new())
    except Exception as error:  # whatever the code of others raises
        raise ConfigError(
            f"The encoder '{name}' must keep the contract: a new document, whose 'document' is -1, "
            f"must be encoded too, but that raised {type(error).__name__}: {error}; test it with "
            f"match_graph.testing.assert_encoder."
        ) from error
    check_output(encoder, output, batch.num_documents, name)
