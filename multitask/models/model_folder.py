"""What a model's folder says about the model in addition to its encoder: pooling, sentence length and heads."""

import re
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field

from minbert.download_checkpoint import HUB_EXTRAS, module_folders, sentence_settings, weights_files
from minbert.errors import InputError, refuse_unknown
from minbert.files import read_json, read_optional_json, write_json
from minbert.settings import read_as, settings
from multitask.base.keys import hash_of_file
from multitask.models.compute_in_batches import PoolingMethod
from multitask.models.settings import HeadsConfig, Pooling

DESCRIPTION = "multitask.json"
HEADS = "heads.safetensors"
POOLING = Path("1_Pooling", "config.json")  # as sentence-transformers names it


@settings
class ModelDescription:
    """What multitask.json says of a fine-tuned model."""

    tasks: dict[str, Any]
    """The tasks' declarations by name."""
    pooling: PoolingMethod
    heads: HeadsConfig
    max_length: Annotated[int, Field(ge=3, lt=2**31)] | None = None
    """Longer sentences, in tokens, are cut; None: at the encoder's limit."""


def read_description(folder: Path) -> ModelDescription | None:
    """What multitask.json says; None if a folder has none. Raises InputError if it is damaged."""
    path = folder / DESCRIPTION
    if not path.is_file():
        return None
    stored = read_json(path, dict)
    if isinstance(tasks := stored.get("tasks"), list):  # version 0.1 names tasks of the course
        stored["tasks"] = {str(name): None for name in tasks}
    if isinstance(heads := stored.get("heads"), dict) and "hidden_size" in heads:  # its name in version 0.1
        heads["head_hidden_size"] = heads.pop("hidden_size")
    return read_as(ModelDescription, stored, path)


def file_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file that a model is read from, by the file's path within the folder.

    Raises InputError if the folder has no weights.
    """
    paths = [*weights_files(folder), *(folder / name for name in ("config.json", DESCRIPTION, HEADS, *HUB_EXTRAS))]
    inside = [path for module in module_folders(folder) for path in sorted((folder / module).rglob("*"))]
    paths += [path for path in inside if path.suffix in (".json", ".safetensors")]
    return {str(path.relative_to(folder)): hash_of_file(path) for path in paths if path.is_file()}


def has_heads(folder: Path) -> bool:
    """Whether a model's folder has heads."""
    return (folder / DESCRIPTION).is_file()


def heads_files(folder: Path, pooling: PoolingMethod) -> list[Path]:
    """The files that turn an encoder's folder into a `MultitaskModel`; none if its heads expect another pooling."""
    found = read_description(folder)
    return [folder / DESCRIPTION, folder / HEADS] if found and found.pooling == pooling else []


def stored_max_length(folder: Path) -> int | None:
    """The longest sentence, in tokens, that a model's folder is set to; None if it is not. Longer sentences are cut."""
    if (found := read_description(folder)) is not None:
        return found.max_length
    places = [("tokenizer_config.json", "model_max_length"), ("tokenizer_config.json", "max_len")]
    if (folder / "modules.json").is_file():  # of sentence-transformers, where this older setting takes precedence
        places.insert(0, (sentence_settings(folder).name, "max_seq_length"))
    for name, key in places:
        length = read_optional_json(folder / name).get(key)
        if length is not None and (type(length) is not int or length < 3):
            raise InputError(f"{folder / name}: {key} is {length!r:.60}; expected a number of tokens from 3")
        if length is not None:
            return length
    return None


def resolve_pooling(pooling: Pooling, folder: Path, unknown: PoolingMethod = "cls") -> PoolingMethod:
    """Replace `auto`: what the start weights were tuned with; if that is unknown, the first token, as in the report.

    How they were tuned is recorded in our own multitask.json, or in sentence-transformers' `1_Pooling/config.json`.
    Raises InputError if it was in another way, or for another name of a pooling.
    """
    refuse_unknown("pooling", pooling, get_args(Pooling))
    if pooling != "auto":
        return pooling
    if (found := read_description(folder)) is not None:
        return found.pooling
    if (stored := stored_pooling(folder)) not in ((), ("mean",), ("cls",)):
        raise InputError(f"{folder / POOLING}: pools by {' and '.join(stored)}; to compute cls or mean, set pooling")
    return "mean" if stored == ("mean",) else "cls" if stored else unknown


def stored_prompts(folder: Path) -> dict[str, str]:
    """What a folder of sentence-transformers puts in front of texts, by their kind, such as `query`; no empty ones."""
    found = read_optional_json(folder / "config_sentence_transformers.json").get("prompts")
    prompts = found if isinstance(found, dict) else {}
    return {str(kind): words for kind, words in prompts.items() if isinstance(words, str) and words}


def stored_similarity(folder: Path) -> str:
    """How sentence-transformers compares embeddings of a folder: by `cosine`, unless the folder names another way."""
    return str(read_optional_json(folder / "config_sentence_transformers.json").get("similarity_fn_name") or "cosine")


def stored_include_prompt(folder: Path) -> bool:
    """Whether sentence-transformers takes prompts into the mean."""
    return read_optional_json(folder / POOLING).get("include_prompt") is not False


def write_pooling(folder: Path, pooling: PoolingMethod, width: int, include_prompt: bool = True) -> None:
    """Write the file that `stored_pooling` reads, in the format that every version of sentence-transformers knows."""
    settings = {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
        **({} if include_prompt else {"include_prompt": False}),
    }
    write_json(folder / POOLING, settings)


def stored_pooling(folder: Path) -> tuple[str, ...]:
    """The poolings that sentence-transformers' `1_Pooling/config.json` names, e.g. `("mean",)`; none without it."""
    settings = read_optional_json(folder / POOLING)
    if modes := settings.get("pooling_mode"):
        return tuple(map(str, modes if isinstance(modes, list) else [modes]))
    flags = (key for key, chosen in settings.items() if key.startswith("pooling_mode_") and chosen)
    return tuple(re.sub("pooling_mode_|_tokens?$", "", flag) for flag in flags)  # the format before version 6
