"""`multitask embed`: embeddings of a text file."""

from dataclasses import dataclass, field
from pathlib import Path

from minbert.errors import InputError
from multitask.cli.command import Command
from multitask.cli.options import POSITIONAL
from multitask.models.config import Pooling
from multitask.runtime.options import Computing


@dataclass(frozen=True)
class Embed:
    """Write the embeddings of a text file as a NumPy array of shape [sentences, hidden], in fp32."""

    text: Path = field(metadata=POSITIONAL)
    """Text file with one sentence a line."""
    output: Path = field(metadata=POSITIONAL)
    """File to write; its name ends in .npy."""
    model: str = "all-minilm-l6-v2"
    """The model: a run, a model folder, all-minilm-l6-v2 or a hub id."""
    revision: str | None = None
    """Revision of a hub id: a branch, tag or commit."""
    pooling: Pooling = "auto"
    """Sentence embedding: the first token (`cls`) or the `mean` of all tokens. `auto` uses what the model was trained
    with."""
    normalize: bool = False
    """Scale every embedding to length 1."""
    computing: Computing = field(default_factory=Computing)

    def __post_init__(self) -> None:
        if self.output.suffix != ".npy":
            raise InputError(f"{self.output}: expected a name that ends in .npy")


def embed(options: Embed) -> int:
    """Embed and write; print what was written."""
    import numpy as np

    from minbert.files import atomic_file
    from multitask.data.read_unlabelled_files import read_sentences
    from multitask.models.sentence_encoder import load_encoder

    sentences = read_sentences(options.text).sentences
    encoder = load_encoder(
        options.model, options.revision, options.pooling, options.computing.device, options.computing.precision
    )
    embeddings = encoder.encode(sentences, normalize=options.normalize, show_progress=True)
    with atomic_file(options.output) as temporary, Path(temporary).open("wb") as file:
        np.save(file, embeddings)
    print(f"{options.output}: {embeddings.shape[0]} embeddings of size {embeddings.shape[1]}")
    return 0


COMMAND = Command("embed", Embed, embed)
