"""What a model's folder says about the model in addition to its encoder: pooling, sentence length and heads."""

import re
from pathlib import Path
from typing import get_args

from minbert.download_checkpoint import HUB_EXTRAS, weights_file
from minbert.errors import InputError
from minbert.files import read_json, sha256_of_file, write_json
from multitask.models.config import Pooling
from multitask.models.pooling import PoolingMethod

DESCRIPTION = "multitask.json"
HEADS = "heads.safetensors"
POOLING = Path("1_Pooling", "config.json")  # as sentence-transformers names it


def file_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file that a model is read from, by the file's path within the folder.

    Raises InputError if the folder has no weights.
    """
    paths = [weights_file(folder), *(folder / name for name in ("config.json", DESCRIPTION, HEADS, *HUB_EXTRAS))]
    return {str(path.relative_to(folder)): sha256_of_file(path) for path in paths if path.is_file()}


def heads_files(folder: Path, pooling: PoolingMethod) -> list[Path]:
    """The files that turn an encoder's folder into a `MultitaskModel`; none if its heads expect another pooling."""
    path = folder / DESCRIPTION
    fits = path.is_file() and read_json(path, dict).get("pooling") == pooling
    return [path, folder / HEADS] if fits else []


def stored_max_length(folder: Path) -> int | None:
    """The longest sentence, in tokens, that a fine-tuned model or sentence-transformers folder is set to; None if not.

    Longer sentences are cut.
    """
    # Newer versions of sentence-transformers use the tokenizer's setting; an older setting still takes precedence.
    places = [("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")]
    if (folder / DESCRIPTION).is_file():
        places = [(DESCRIPTION, "max_length")]
    elif not (folder / "modules.json").is_file():
        return None
    for name, key in places:
        length = read_json(folder / name, dict).get(key) if (folder / name).is_file() else None
        if length is not None and (type(length) is not int or length < 3):
            raise InputError(f"{folder / name}: {key} is {length!r:.60}; expected a number of tokens from 3")
        if length is not None:
            return length
    return None


def resolve_pooling(pooling: Pooling, folder: Path) -> PoolingMethod:
    """Replace `auto`: the mean if the start weights were tuned with it, otherwise the first token, as in the report.

    How they were tuned is recorded in our own multitask.json, or in sentence-transformers' `1_Pooling/config.json`.
    """
    if pooling != "auto":
        return pooling
    if (folder / DESCRIPTION).is_file():
        stored = read_json(folder / DESCRIPTION, dict).get("pooling")
        if stored in get_args(PoolingMethod):
            return stored
    return "mean" if "mean" in stored_pooling(folder) else "cls"


def write_pooling(folder: Path, pooling: PoolingMethod, width: int) -> None:
    """Write the file that `stored_pooling` reads, in the format that every version of sentence-transformers knows.

    Args:
        folder: of the model.
        pooling: to record.
        width: size of the embeddings.
    """
    settings = {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
    }
    write_json(folder / POOLING, settings)


def stored_pooling(folder: Path) -> tuple[str, ...]:
    """The poolings that sentence-transformers' `1_Pooling/config.json` names, e.g. `("mean",)`; none without it."""
    path = folder / POOLING
    settings = read_json(path, dict) if path.is_file() else {}
    if modes := settings.get("pooling_mode"):
        return (modes,) if isinstance(modes, str) else tuple(map(str, modes if isinstance(modes, list) else [modes]))
    flags = (key for key, chosen in settings.items() if key.startswith("pooling_mode_") and chosen)
    return tuple(re.sub("pooling_mode_|_tokens?$", "", flag) for flag in flags)  # the format before version 6
