"""Which device and precision a stage computes with."""

import logging
from typing import Any

import torch
from lightning.fabric import Fabric

from match_graph.config import TrainConfig
from match_graph.errors import ConfigError


def choose_device(accelerator: str) -> torch.device:
    """The device of an accelerator: for "auto" a GPU if there is one.

    Raises:
        ConfigError: The accelerator is unknown, or is a GPU that torch does not find.
    """
    has_cuda = torch.cuda.is_available()
    if accelerator not in ("auto", "cpu", "cuda") or (accelerator == "cuda" and not has_cuda):
        raise ConfigError(
            f"The device must be 'auto', 'cpu' or, where torch finds a GPU, 'cuda', "
            f"found '{accelerator}'."
        )
    return torch.device("cuda" if has_cuda and accelerator != "cpu" else "cpu")


def choose_precision(config: TrainConfig) -> str:
    """The precision of a configuration: for "auto" bfloat16 where the processor computes in it."""
    if config.precision != "auto":
        return config.precision
    if choose_device(config.accelerator).type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:  # emulated bfloat16 is slower than float32, so the instructions themselves must be there
        capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        native = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))
    return "bf16-mixed" if native else "32-true"


def make_fabric(config: TrainConfig) -> Fabric:
    """Lightning Fabric on one device, with the precision of `choose_precision`."""
    for name in ("lightning.fabric", "lightning.pytorch"):  # they announce the precision every time
        logging.getLogger(name).setLevel(logging.WARNING)
    precision: Any = choose_precision(config)
    fabric = Fabric(
        accelerator=choose_device(config.accelerator).type, devices=1, precision=precision
    )
    fabric.launch()
    return fabric
