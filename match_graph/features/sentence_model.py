"""Loading of sentence-transformers models: located, checked, and read without remote code."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from match_graph.errors import ConfigError, import_extra
from match_graph.io.manifest import compute_digest, parse_json, read_bytes
from match_graph.io.names import check_inner_path
from match_graph.io.source import is_folder

#: Files that define a model; nothing else is fetched from the hub.
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
#: Modules that may be loaded, by the last part of their ``type``.
_MODULES = frozenset(
    {"Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "StaticEmbedding",
     "WeightedLayerPooling"}
)  # fmt: skip
_MODULE_TYPE = re.compile(r"sentence_transformers(\.[a-z_]+)*\.([A-Za-z]+)")
_MAX_JSON_BYTES = 2**26
#: Exceptions of loading a damaged or foreign model.
_FAULTS = (OSError, ValueError, KeyError, ImportError, RuntimeError, TypeError, SafetensorError)
_PACKAGE = "sentence_transformers"
#: Stands for no length limit; tokenizers without one give a larger number.
_NO_LIMIT = 10**9


def find_model(name: str) -> Path:
    """Folder of a model; refused if its weights are only pickled, or if it needs code of its own.

    Args:
        name: Folder, or a name on the hub, whose files are fetched unless they are cached.

    Raises:
        ConfigError: There is none, or it cannot be used; weights are not read for this check.
    """
    try:
        if is_folder(name):
            folder = Path(name)
        elif name.count("/") > 1 or name[:1] in ("", ".", "/", "~"):
            raise ValueError("there is no such folder")
        else:
            folder = _fetch(name)
        _check_folder(folder)
    except (OSError, ValueError, RuntimeError) as error:
        raise _refuse(name, error) from error
    return folder


def compute_model_digest(folder: Path) -> str:
    """SHA-256 of a model's files and their relative paths, as hexadecimal digits."""
    digest = hashlib.sha256()
    paths = {
        path.relative_to(folder).as_posix(): path for end in _FILES for path in folder.rglob(end)
    }
    for name, path in sorted(paths.items()):
        if path.is_file() and not any(part.startswith(".") for part in Path(name).parts):
            digest.update(f"{name}\0{compute_digest(path).sha256}\0".encode())
    return digest.hexdigest()


def load_model(name: str, folder: Path, device: torch.device, max_pieces: int | None) -> Any:
    """Loads the model of a folder from `find_model` for inference, in bfloat16 where it is faster.

    Args:
        name: Name of the model, for messages.
        folder: Its folder.
        device: Device of the model.
        max_pieces: Maximum number of word pieces of a text; None for the model's own.

    Raises:
        ConfigError: sentence-transformers is not installed, or cannot read the model; or the model
            has fewer positions.
    """
    package = _import_package()
    is_fast = device.type == "cuda" or (device.type == "cpu" and is_bfloat16_native())
    dtype = torch.bfloat16 if is_fast else torch.float32
    try:
        with quiet_transformers():
            model = package.SentenceTransformer(
                str(folder),
                device=str(device),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True, "dtype": dtype},
            )
    except _FAULTS as error:
        raise _refuse(name, error) from error
    if max_pieces is not None:
        reader = getattr(model[0], "auto_model", None)
        most = _NO_LIMIT if reader is None else find_max_positions(reader, model.tokenizer)
        if max_pieces > most:
            raise ConfigError(
                f"max_pieces must be at most the positions of '{name}', found {max_pieces} and "
                f"{most}; lower it."
            )
        model.max_seq_length = max_pieces
    return model.eval()


def find_max_positions(model: Any, tokenizer: Any) -> int:
    """Maximum number of tokens of a language model.

    Args:
        model: Model of transformers. If position embeddings begin after a padding row, as in
            RoBERTa, that many fewer positions are usable.
        tokenizer: Tokenizer, whose own limit applies too.
    """
    limits = [int(min(tokenizer.model_max_length, _NO_LIMIT))]
    limits += [int(getattr(model.config, "max_position_embeddings", None) or _NO_LIMIT)]
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - first)
    return min(limits)


def _fetch(name: str) -> Path:
    if find_spec(_PACKAGE) is None:  # its import takes seconds
        _import_package()
    from huggingface_hub import snapshot_download

    with quiet_transformers():
        return Path(snapshot_download(name, allow_patterns=[*_FILES], ignore_patterns=["onnx/*"]))


def _check_folder(folder: Path) -> None:
    """Refuses a model whose files name code, or whose weights are pickled alone.

    Raises:
        OSError, ValueError: With the reason.
    """
    places = [folder]
    if (folder / "modules.json").exists():
        places = [folder / path for path in _list_modules(folder)]
    if (folder / "adapter_config.json").exists():
        raise ValueError("it is an adapter of another model; merge both into one folder")
    for place in {folder, *places}:
        there = [path for path in place.iterdir() if path.is_file()] if place.is_dir() else []
        pickles = [path.name for path in there if path.suffix in _PICKLES]
        if pickles and not any(path.suffix == ".safetensors" for path in there):
            raise ValueError(
                f"its weights are pickled ({', '.join(sorted(pickles))}), which can run code; "
                f"convert them to safetensors"
            )
        for path in there:
            if path.suffix == ".json" and path.name.endswith("config.json"):
                _check_settings(path.name, parse_json(read_bytes(path, _MAX_JSON_BYTES)))


def _list_modules(folder: Path) -> list[str]:
    """Paths of the modules, relative to the folder."""
    listed = parse_json(read_bytes(folder / "modules.json", _MAX_JSON_BYTES))
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise ValueError("its modules.json is no list of modules")
    for one in listed:
        found = _MODULE_TYPE.fullmatch(str(one.get("type")))
        if found is None or found[2] not in _MODULES:
            raise ValueError(
                f"its modules.json asks for the module '{one.get('type')}', and only "
                f"{', '.join(sorted(_MODULES))} of sentence-transformers are read"
            )
        if one.get("path") != "":
            check_inner_path(str(one.get("path")))
    return [str(one["path"]) for one in listed]


def _check_settings(name: str, settings: Any) -> None:
    """Refuses attention named like a repository, whose code transformers would fetch."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            if str(key).endswith("_implementation") and "/" in str(value):
                raise ValueError(f"its {name} asks for the code '{value}'")
            _check_settings(name, value)


def _refuse(name: str, error: Exception) -> ConfigError:
    reason = " ".join(str(error).split()).rstrip(".")
    return ConfigError(
        f"A language model must be a folder or a name on the hub that sentence-transformers can "
        f"read from safetensors without code of its own, but '{name}' is not ({reason}); check the "
        f"name, or choose another."
    )


def _import_package() -> Any:
    return import_extra(_PACKAGE, "A language model for features", "lm")


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silences progress bars and notes of transformers within the block."""
    import transformers

    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def is_bfloat16_native() -> bool:
    """Whether the CPU has instructions for bfloat16; emulation is six times slower."""
    has: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(has.get("avx512_bf16") or has.get("amx_bf16"))
