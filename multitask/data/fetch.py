"""Downloads the real data sets that `sources.toml` lists: resumed when cut, verified, never half there."""

import hashlib
import logging
import os
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tqdm import tqdm

from minbert.errors import InputError
from minbert.files import sha256_of_file

LOGGER = logging.getLogger("multitask")
ATTEMPTS = 5
CHUNK = 1 << 16  # bytes
TRANSIENT = {408, 416, 429, 500, 502, 503, 504}  # HTTP statuses that another attempt can mend


@dataclass(frozen=True)
class Source:
    """One file of a published data set.

    Args:
        name: of the set that the file belongs to.
        terms: on which the set may be used.
        file: its name in the destination folder.
        url: where it is published, at a fixed revision.
        kind: of the checksum: of the bytes, or git's blob id, the SHA-1 of a header with the size, and the bytes.
        checksum: hex digits.
        size: in bytes, or None if not known.
    """

    name: str
    terms: str
    file: str
    url: str
    kind: Literal["sha256", "git_blob"]
    checksum: str
    size: int | None


def load_sources() -> list[Source]:
    """The published files, in the order of `sources.toml`."""
    sets = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    return [_source(name, entry, file) for name, entry in sets.items() for file in entry["files"]]


def fetch(
    sources: Sequence[Source],
    destination: Path,
    names: Sequence[str] | None = None,
    *,
    timeout_seconds: float = 30.0,
    pause_seconds: float = 1.0,
) -> list[Path]:
    """Download what is not in the folder yet. A file has its name only once it is whole and verified.

    Args:
        sources: the published files.
        destination: folder, made if it is missing.
        names: the sets wanted; None for all.
        timeout_seconds: of silence from the server before an attempt counts as failed.
        pause_seconds: before the second attempt; doubled for each further one.

    Returns:
        The wanted files' paths, in the order of `sources`.

    Raises:
        InputError: a name is unknown, a file of that name but with other content is in the folder, the server refuses
            or keeps failing, or what it sent has the wrong checksum.
    """
    known = list(dict.fromkeys(source.name for source in sources))
    if unknown := [name for name in names or () if name not in known]:
        raise InputError(f"no data set is called {', '.join(unknown)}; expected some of {', '.join(known)}")
    wanted = [source for source in sources if names is None or source.name in names]
    # All are looked at before any is downloaded, so that a file in the way is known at once.
    missing = [source for source in wanted if not _is_present(source, destination / source.file)]
    destination.mkdir(parents=True, exist_ok=True)
    for source in missing:
        _download(source, destination / source.file, timeout_seconds, pause_seconds)
    return [destination / source.file for source in wanted]


def _source(name: str, entry: dict[str, Any], file: dict[str, Any]) -> Source:
    url = entry["base_url"] + file.get("remote", file["file"])
    kind: Literal["sha256", "git_blob"] = "sha256" if "sha256" in file else "git_blob"
    return Source(name, entry["terms"], file["file"], url, kind, file[kind], file.get("size"))


def _is_present(source: Source, path: Path) -> bool:
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
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _download(source: Source, path: Path, timeout_seconds: float, pause_seconds: float) -> None:
    # Not minbert.files.atomic_file, which removes what has arrived when the block fails: here it is resumed.
    part = path.with_name(f"{path.name}.part")
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(pause_seconds * 2 ** (attempt - 1))
        try:
            _receive(source, part, timeout_seconds)
            break
        except HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
            if error.code not in TRANSIENT:
                raise InputError(f"{source.url}: {reason}") from None
            if error.code == 416:  # range not satisfiable: the part is as long as the file, or longer
                part.unlink(missing_ok=True)
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
    else:
        raise InputError(
            f"{source.url}: not downloaded in {ATTEMPTS} attempts ({reason}); run the command again to go on "
            f"from what has arrived, or put the file at {path} by hand"
        )
    if (found := _checksum(part, source.kind)) != source.checksum:
        part.unlink()
        raise InputError(
            f"{source.url}: what was received is not the published file and was removed ({source.kind} {found}, "
            f"expected {source.checksum}); run the command again, and if this stays, something on the way alters it"
        )
    part.replace(path)


def _receive(source: Source, part: Path, timeout_seconds: float) -> None:
    """One attempt to make the part whole. A server that ignores the range starts it anew.

    Raises:
        OSError, HTTPException: the connection failed or ended early; what arrived is in the part.
    """
    start = part.stat().st_size if part.exists() else 0
    if start and _checksum(part, source.kind) == source.checksum:
        return  # an earlier run was stopped between the last byte and the renaming
    request = Request(source.url, headers={"Range": f"bytes={start}-"} if start else {})
    with urlopen(request, timeout=timeout_seconds) as response:
        if response.status != 206:
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else source.size
        bar = tqdm(desc=source.file, initial=start, total=total, unit="B", unit_scale=True, disable=None)
        with part.open("ab" if start else "wb") as file, bar:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
            file.flush()
            os.fsync(file.fileno())
    received = part.stat().st_size
    if total is not None and received < total:
        raise ConnectionError(f"connection cut after {received:,} of {total:,} bytes")
