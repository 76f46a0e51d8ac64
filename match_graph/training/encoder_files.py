"""Files that an encoder keeps besides its weights: a tokenizer, a configuration."""

from pathlib import Path

from match_graph.config import ModelConfig
from match_graph.io.files import ENCODER_FILES, has_folder, write_folder
from match_graph.nn import Encoder
from match_graph.training.fitting import find_encoder


def write_encoder_files(encoder: Encoder, folder: Path) -> None:
    """Writes an encoder's files as a whole, once; no folder where there are none.

    Args:
        encoder: Encoder of the run.
        folder: Run folder.
    """
    if not has_folder(folder / ENCODER_FILES):
        write_folder(folder / ENCODER_FILES, encoder.save_files)


def with_encoder_files(config: ModelConfig, folder: Path) -> ModelConfig:
    """The settings by which the encoder of a trained run is made from the run folder alone.

    Args:
        config: Model settings of the run.
        folder: Run folder.

    Raises:
        CheckpointError: A file is missing or damaged.
    """
    kept = folder / ENCODER_FILES
    if not has_folder(kept):
        return config
    cls = find_encoder(config.encoder)
    assert issubclass(cls, Encoder)
    settings = {**config.encoder_config, **cls.kept_settings(kept)}
    return config.model_copy(update={"encoder_config": settings})
