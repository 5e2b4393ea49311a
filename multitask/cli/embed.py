"""`multitask embed`: embeddings of a text file."""

from dataclasses import field
from pathlib import Path

from minbert.errors import InputError
from minbert.settings import settings
from multitask.cli.command import Command
from multitask.cli.options import POSITIONAL
from multitask.models.config import Pooling
from multitask.runtime.options import EmbeddingComputing


@settings
class Embed:
    """Write the embeddings of a file's sentences as a NumPy array of shape [sentences, hidden], in fp32.

    The file may be larger than memory.
    """

    text: Path = field(metadata=POSITIONAL)
    """Text file with one sentence a line; or a table (csv, tsv, jsonl, parquet) with --column."""
    output: Path = field(metadata=POSITIONAL)
    """File to write; its name ends in .npy."""
    model: str = "all-minilm-l6-v2"
    """The model: a run, a model folder, all-minilm-l6-v2 or a hub id."""
    revision: str | None = None
    """Revision of a hub id: a branch, tag or commit."""
    pooling: Pooling = "auto"
    """Sentence embedding: the first token (`cls`) or the `mean` of all tokens. `auto` uses what the model was trained
    with."""
    column: str | None = None
    """Column of the sentences of a table."""
    normalize: bool = False
    """Scale every embedding to length 1."""
    computing: EmbeddingComputing = field(default_factory=EmbeddingComputing)

    def __post_init__(self) -> None:
        if self.output.suffix != ".npy":
            raise InputError(f"{self.output}: expected a name that ends in .npy")


def embed(options: Embed) -> int:
    """Embed and write; print what was written."""
    from multitask.inference.embed_file import embed_file
    from multitask.models.sentence_encoder import load_encoder

    encoder = load_encoder(
        options.model, options.revision, options.pooling, options.computing.device, options.computing.precision
    )
    count, width = embed_file(encoder, options.text, options.output, options.column, options.normalize)
    print(f"{options.output}: {count} embeddings of size {width}")
    return 0


COMMAND = Command("embed", Embed, embed)
