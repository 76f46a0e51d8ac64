"""What an encoder keeps in a run folder besides its weights: a tokenizer, a configuration."""

import os
import shutil
from pathlib import Path

from match_graph.config import ModelConfig
from match_graph.nn import Encoder
from match_graph.training.files import ENCODER_FILES
from match_graph.training.fitting import find_encoder


def write_encoder_files(encoder: Encoder, folder: Path) -> None:
    """Writes them as a whole, once; no folder where there are none.

    Args:
        encoder: Of the run.
        folder: Of the run.
    """
    if (folder / ENCODER_FILES).is_dir():
        return
    beside = folder / f".{ENCODER_FILES}.{os.getpid()}.tmp"
    try:
        beside.mkdir(parents=True)
        encoder.save_files(beside)
        if any(beside.iterdir()):
            beside.rename(folder / ENCODER_FILES)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def with_encoder_files(config: ModelConfig, folder: Path) -> ModelConfig:
    """The settings by which the encoder of a trained run is made from the run folder alone.

    Args:
        config: Of the run.
        folder: Of the run.
    """
    kept = folder / ENCODER_FILES
    if not kept.is_dir():
        return config
    cls = find_encoder(config.encoder)
    assert issubclass(cls, Encoder)
    settings = {**config.encoder_config, **cls.kept_settings(kept)}
    return config.model_copy(update={"encoder_config": settings})
