"""A cache of embeddings: each different sentence is embedded once and kept on disk for later evaluations."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minbert.errors import InputError
from minbert.files import atomic_folder
from multitask.models.sentence_encoder import Embedder
from multitask.runs.locks import exclusive

Vectors = NDArray[np.float32]  # [sentences, dim]


@dataclass(frozen=True)
class EmbeddingTable:
    """Embeddings by sentence."""

    rows: Mapping[str, int]  # the row of each sentence
    vectors: Vectors
    computed: int  # how many sentences were embedded now; the others came from the cache

    def __getitem__(self, sentences: Sequence[str]) -> Vectors:
        """Embeddings of sentences that are in the table, [sentences, dim]."""
        return self.vectors[[self.rows[sentence] for sentence in sentences]]


def default_cache() -> Path:
    """Folder of cached embeddings, in `$MULTITASK_CACHE` or the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("MULTITASK_CACHE") or Path(base) / "minbert-multitask") / "embeddings"


def embed(
    encoder: Embedder, sentences: Iterable[str], cache: Path | None, show_progress: bool = False
) -> EmbeddingTable:
    """Embed all different sentences: read those that are cached, and add the others to the cache.

    The cache has a folder for each encoder, with a folder for each call that added something. A folder is written
    atomically, so any number of processes can share the cache; at worst two of them compute the same embeddings.

    Args:
        encoder: its identity names the folder in the cache.
        sentences: may repeat.
        cache: folder of the cache; None for no cache.
        show_progress: on standard error, if it is a terminal.

    Raises:
        InputError: embeddings are not finite.
    """
    different = list(dict.fromkeys(sentences))
    keys = [sha256(sentence.encode()).digest()[:16] for sentence in different]
    folder = None if cache is None else cache / encoder.identity
    cached = {} if folder is None else _read(folder, set(keys))
    missing = [i for i, key in enumerate(keys) if key not in cached]
    if missing:
        new = encoder.encode([different[i] for i in missing], show_progress=show_progress)
        if not np.isfinite(new).all():
            raise InputError(f"{encoder.name}: the encoder's embeddings are not finite; its weights are damaged")
        if folder is not None:
            _write(folder, [keys[i] for i in missing], new)
        cached |= dict(zip([keys[i] for i in missing], new, strict=True))
    vectors = np.stack([cached[key] for key in keys])
    return EmbeddingTable({sentence: row for row, sentence in enumerate(different)}, vectors, len(missing))


def _read(folder: Path, wanted: set[bytes]) -> dict[bytes, Vectors]:
    """Cached embeddings of the wanted sentences, by the sentences' hashes; views of memory-mapped files."""
    found: dict[bytes, Vectors] = {}
    for part in sorted(folder.glob("[!.]*")):
        vectors = np.load(part / "embeddings.npy", mmap_mode="r", allow_pickle=False)
        hashes = [row.tobytes() for row in np.load(part / "hashes.npy", allow_pickle=False)]
        found |= {key: vectors[row] for row, key in enumerate(hashes) if key in wanted}
    return found


def _write(folder: Path, keys: Sequence[bytes], vectors: Vectors) -> None:
    part = folder / sha256(b"".join(keys)).hexdigest()[:32]
    with exclusive(folder / ".lock"):
        if part.is_dir():  # another process has added the same
            return
        with atomic_folder(part) as temporary:
            np.save(temporary / "hashes.npy", np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16))
            np.save(temporary / "embeddings.npy", vectors)
