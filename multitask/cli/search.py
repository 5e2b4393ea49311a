"""`multitask search`: the sentences of an index that are nearest to queries."""

from multitask.cli.commands import Search
from multitask.data.write_tables import STANDARD_OUTPUT, check_output, table_writer
from multitask.models.sentence_encoder import load_encoder
from multitask.use.embed import Index, sentences
from multitask.use.search import search as nearest

COLUMNS = ("query", "rank", "score", "row", "text")


def search(options: Search) -> None:
    """Search and write; print the file written."""
    check_output(options.output)
    queries = list(sentences(options.queries, options.column, options.file_format))
    encoder = load_encoder(options.model, options.revision, options.pooling, options.device, options.precision)
    index = Index.open(options.index, encoder)
    found = nearest(encoder.encode(queries, dimensions=index.vectors.shape[1]), index.vectors, options.top)
    encoder.unread.warn(options.queries)
    texts = index.texts_of(set(found.indices.ravel().tolist()))
    with table_writer(options.output, COLUMNS, form=".jsonl") as write:
        for query, scores, rows in zip(queries, found.scores.tolist(), found.indices.tolist(), strict=True):
            near = enumerate(zip(scores, rows, strict=True), start=1)
            values = ((query, rank, round(score, 6), row, texts[row]) for rank, (score, row) in near)
            write([dict(zip(COLUMNS, value, strict=True)) for value in values])
    if options.output != STANDARD_OUTPUT:
        print(options.output)
