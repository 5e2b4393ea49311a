"""`multitask mine`: hard negatives for pairs of sentences."""

from itertools import islice

from minbert.errors import InputError
from multitask.cli.commands import Mine
from multitask.data.write_tables import check_output, table_writer
from multitask.models.sentence_encoder import load_encoder
from multitask.use.mine import COLUMNS, SAME_MEANING, index_of, mined_rows, negatives_of, read_pairs

ROWS_PER_BLOCK = 8192


def mine(options: Mine) -> None:
    """Find negatives and write; print what was written."""
    check_output(options.output)
    pairs = read_pairs(options.pairs, options.text, options.data, options.file_format)
    encoder = load_encoder(options.model, options.revision, options.pooling, options.device, options.precision)
    columns, count = COLUMNS[options.format], 0
    of_corpus = options.corpus, options.column, options.output, options.file_format
    with index_of(encoder, pairs, *of_corpus) as corpus:
        negatives = negatives_of(encoder, pairs, corpus, options, options.pairs in SAME_MEANING)
        having = sum(map(bool, negatives.values()))
        if not having:
            raise InputError("no text is left as a negative; widen --ranks, or change --margin and --relative-margin")
        rows = mined_rows(pairs, negatives, corpus, options.format)
        with table_writer(options.output, columns) as write:
            while block := list(islice(rows, ROWS_PER_BLOCK)):
                write([dict(zip(columns, row, strict=True)) for row in block])
                count += len(block)
    print(f"{options.output}: {count} rows; {having} of {len(negatives)} anchors have negatives")
