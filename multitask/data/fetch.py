"""Bring data to the user: published data sets with checksums, and the bundled sample."""

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from tqdm import tqdm

from minbert.errors import DiskFullError, InputError
from minbert.files import atomic_file, atomic_folder, has_checksum, read_toml
from multitask.base import logger

ATTEMPTS = 5
TRANSIENT = {408, 429, 500, 502, 503, 504}  # HTTP statuses after which another attempt may succeed


@dataclass(frozen=True)
class PublishedFile:
    """One file of a published data set."""

    name: str  # of the data set that the file belongs to
    terms: str  # of use of the data set
    file: str  # name in the destination folder
    url: str  # at a fixed revision
    checksum: str  # see `has_checksum`


def load_sources(names: Sequence[str] = ()) -> list[PublishedFile]:
    """The published files of the named data sets, or of all. Raises InputError if a name is unknown."""
    sets = read_toml(Path(__file__).with_name("sources.toml"))
    if unknown := [name for name in names if name not in sets]:
        raise InputError(f"no data set is called {', '.join(unknown)}; expected some of {', '.join(sets)}")
    return [
        PublishedFile(
            name, entry["terms"], file["file"], entry["base_url"] + file.get("remote", file["file"]), file["checksum"]
        )
        for name, entry in sets.items()
        for file in entry["files"]
        if not names or name in names
    ]


def fetch(
    sources: Sequence[PublishedFile], destination: Path, timeout_seconds: float = 30.0, pause_seconds: float = 1.0
) -> list[Path]:
    """Download the files that the folder does not contain yet; returns the paths of all.

    Raises InputError if the folder contains a file of the same name with other content, or the server refuses, keeps
    failing, or keeps sending a file with the wrong checksum.
    """
    wanted = {destination / source.file: source for source in sources}
    # Check all before any download, so that a file in the way is reported at once.
    missing = {path: source for path, source in wanted.items() if not _is_present(source, path)}
    for path, source in missing.items():
        _download(source, path, timeout_seconds, pause_seconds)
    return list(wanted)


def _is_present(source: PublishedFile, path: Path) -> bool:
    if not path.exists():
        return False
    if not has_checksum(path, source.checksum):
        raise InputError(f"{path}: this file is not the published one; move it away or fetch into another folder")
    logger.info("%s: already there", path)
    return True


def _download(source: PublishedFile, path: Path, timeout_seconds: float, pause_seconds: float) -> None:
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(pause_seconds * 2 ** (attempt - 1))
        try:
            with atomic_file(path) as temporary:
                with urlopen(source.url, timeout=timeout_seconds) as response, temporary.open("wb") as file:
                    total = int(response.headers.get("Content-Length") or 0) or None
                    with tqdm.wrapattr(file, "write", total, desc=source.file, disable=None) as out:
                        shutil.copyfileobj(response, out)
                if not has_checksum(temporary, source.checksum):
                    received = f"{temporary.stat().st_size:,} bytes"
                    raise ConnectionError(f"the {received} received are not the published file {source.checksum}")
            return
        except DiskFullError:
            raise
        except HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
            if error.code not in TRANSIENT:
                raise InputError(f"{source.url}: {reason}") from None
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
    raise InputError(
        f"{source.url}: not downloaded in {ATTEMPTS} attempts ({reason}); run the command again, or put the file at "
        f"{path} by hand"
    )


CHECKOUT_DATA = Path(__file__).parents[2] / "data"
INSTALLED_DATA = "share/minbert-multitask"
"""Where an installed package keeps the data, below the environment's folder (see `data-files` in pyproject.toml)."""
FOLDERS = ("sample", "own")


def copy_sample(folder: Path) -> list[Path]:
    """Write the course's sample files to `folder/sample` and the example of a tasks file to `folder/own`.

    Raises:
        InputError: one of them exists already, or the package was installed without its data.
        DiskFullError: the disk is full.
    """
    targets = [folder / name for name in FOLDERS]
    if existing := next((target for target in targets if target.exists()), None):
        raise InputError(f"{existing}: exists already; name another folder, or remove it")
    for target in targets:
        with atomic_folder(target) as temporary:
            for path in _bundled(target.name):
                shutil.copyfile(path, temporary / path.name)
    return targets


def _bundled(name: str) -> Iterator[Path]:
    """The files of one of the `FOLDERS`, from the checkout if there is one, else from the installed package."""
    if (CHECKOUT_DATA / name).is_dir():
        yield from sorted((CHECKOUT_DATA / name).iterdir())
        return
    try:
        installed = files("minbert-multitask") or []
    except PackageNotFoundError:
        installed = []
    found = [Path(str(file.locate())) for file in installed if f"{INSTALLED_DATA}/{name}/" in file.as_posix()]
    if not found:
        raise InputError(
            "the sample data is not installed; install the package from a wheel, or take data/ of a checkout"
        )
    yield from found
