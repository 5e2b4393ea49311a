"""`multitask embed`: embeddings of a text file."""

from multitask.cli.commands import Embed
from multitask.models.sentence_encoder import load_encoder
from multitask.use.embed import embed_file


def embed(options: Embed) -> None:
    """Embed and write; print what was written."""
    encoder = load_encoder(options.model, options.revision, options.pooling, options.device, options.precision)
    stored = options.normalize, options.dtype, options.dimensions
    count, width = embed_file(encoder, options.text, options.output, options.column, *stored, options.file_format)
    print(f"{options.output}: {count} embeddings of size {width}")
