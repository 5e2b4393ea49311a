"""One random stream for each use: every draw outside torch's own generators comes from `generator` or `torch_seed`.

A use has a name, and each name stands at one place in the code (a test checks it), so no two uses share random numbers.
"""

from hashlib import sha256

import numpy as np


def generator(seed: int, use: str, *keys: int | str) -> np.random.Generator:
    """The random stream of a use, e.g. `generator(seed, "batch order", task, epoch)`.

    The seed is that of the run, or a constant for draws that are the same in every run.
    """
    # repr tells 1 from "1"; the digest makes streams of similar names unrelated.
    digest = sha256(repr((use, *keys)).encode()).digest()
    return np.random.default_rng([seed, *np.frombuffer(digest, np.uint32).tolist()])


def torch_seed(seed: int, use: str, *keys: int | str) -> int:
    """A seed for a torch generator, from the stream of a use."""
    return int(generator(seed, use, *keys).integers(2**63))
