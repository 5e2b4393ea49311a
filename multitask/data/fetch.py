"""Download the real data sets that `sources.toml` lists.

A file gets its name only when it is complete and its checksum is verified. A download that breaks off begins again.
"""

import hashlib
import logging
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError
from urllib.request import urlopen

from tqdm import tqdm

from minbert.errors import DiskFullError, InputError
from minbert.files import atomic_file, sha256_of_file

LOGGER = logging.getLogger("multitask")
ATTEMPTS = 5
CHUNK = 1 << 16  # bytes
TRANSIENT = {408, 429, 500, 502, 503, 504}  # HTTP statuses after which another attempt may succeed


@dataclass(frozen=True)
class PublishedFile:
    """One file of a published data set."""

    name: str  # of the data set that the file belongs to
    terms: str  # of use of the data set
    file: str  # name in the destination folder
    url: str  # at a fixed revision
    kind: Literal["sha256", "git_blob"]  # git's blob id: SHA-1 of a header with the size, and the bytes
    checksum: str  # hex digits
    size: int | None  # in bytes, if known


def load_sources() -> list[PublishedFile]:
    """The published files, in the order of `sources.toml`."""
    sets = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    found = []
    for name, entry in sets.items():
        for file in entry["files"]:
            url = entry["base_url"] + file.get("remote", file["file"])
            kind: Literal["sha256", "git_blob"] = "sha256" if "sha256" in file else "git_blob"
            found.append(PublishedFile(name, entry["terms"], file["file"], url, kind, file[kind], file.get("size")))
    return found


def fetch(
    sources: Sequence[PublishedFile],
    destination: Path,
    names: Sequence[str] | None = None,
    *,
    timeout_seconds: float = 30.0,
    pause_seconds: float = 1.0,
) -> list[Path]:
    """Download files of the named data sets (None: all) that the folder does not contain yet; returns all their paths.

    Raises:
        InputError: a name is unknown, the folder contains a file of the same name with other content, the server
            refuses or keeps failing, or the received file has the wrong checksum.
    """
    known = list(dict.fromkeys(source.name for source in sources))
    if unknown := [name for name in names or () if name not in known]:
        raise InputError(f"no data set is called {', '.join(unknown)}; expected some of {', '.join(known)}")
    wanted = [source for source in sources if names is None or source.name in names]
    # Check all before any download, so that a file in the way is reported at once.
    missing = [source for source in wanted if not _is_present(source, destination / source.file)]
    destination.mkdir(parents=True, exist_ok=True)
    for source in missing:
        _download(source, destination / source.file, timeout_seconds, pause_seconds)
    return [destination / source.file for source in wanted]


def _is_present(source: PublishedFile, path: Path) -> bool:
    if not path.exists():
        return False
    if (found := _checksum(path, source.kind)) != source.checksum:
        raise InputError(
            f"{path}: this file is not the published one ({source.kind} {found}, expected {source.checksum}); "
            "move it away or fetch into another folder"
        )
    LOGGER.info("%s: already there", path)
    return True


def _checksum(path: Path, kind: Literal["sha256", "git_blob"]) -> str:
    if kind == "sha256":
        return sha256_of_file(path)
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _download(source: PublishedFile, path: Path, timeout_seconds: float, pause_seconds: float) -> None:
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(pause_seconds * 2 ** (attempt - 1))
        try:
            with atomic_file(path) as temporary:
                _receive(source, temporary, timeout_seconds)
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


def _receive(source: PublishedFile, temporary: Path, timeout_seconds: float) -> None:
    """Try once to download a file.

    Raises:
        OSError, HTTPException: the connection failed or ended early.
        InputError: the server sends another file.
    """
    with urlopen(source.url, timeout=timeout_seconds) as response, temporary.open("wb") as file:
        length = response.headers.get("Content-Length")
        total = int(length) if length else source.size
        received = 0
        with tqdm(desc=source.file, total=total, unit="B", unit_scale=True, disable=None) as bar:
            while chunk := response.read(CHUNK):
                received += file.write(chunk)
                bar.update(len(chunk))
    if total is not None and received < total:
        raise ConnectionError(f"connection cut after {received:,} of {total:,} bytes")
    if (found := _checksum(temporary, source.kind)) != source.checksum:
        raise InputError(
            f"{source.url}: the received file is not the published file and was removed ({source.kind} {found}, "
            f"expected {source.checksum}); run the command again; if this repeats, a proxy may alter the file"
        )
