"""Checks of the encoder contract at wiring time."""

import torch

from match_graph.config import StrictModel
from match_graph.errors import ConfigError, list_faults
from match_graph.graph import EgoBatch
from match_graph.nn.encoders import Encoder, EncoderOutput

NEEDS = frozenset({"tokens", "graph", "text"})
GIVES = ("document", "tokens")


def check_encoder_class(cls: type[Encoder], name: str) -> None:
    """Checks what an encoder's class states.

    Args:
        cls: Encoder class.
        name: Name of the encoder as in ``model.encoder``, for the message.

    Raises:
        ConfigError: With every fault.
    """
    faults = []
    if not (isinstance(cls.needs, frozenset | set) and cls.needs <= NEEDS):
        faults.append(f"'needs' must be a set out of {sorted(NEEDS)}, found {cls.needs!r}.")
    if cls.gives not in GIVES:
        faults.append(f"'gives' must be one of {list(GIVES)}, found {cls.gives!r}.")
    if not (isinstance(cls.Config, type) and issubclass(cls.Config, StrictModel)):
        faults.append(f"'Config' must be a subclass of StrictModel, found {cls.Config!r}.")
    faults += [
        f"it must define '{method}', found none."
        for method in ("forward", "reset_parameters")
        if getattr(cls, method) is getattr(Encoder, method)
    ]
    if faults:
        raise ConfigError(list_faults(f"The encoder '{name}' must keep the contract", faults))


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
