"""Commands that use a model on sentences: predict, embed, search, mine, export.

The options of a command stand before its function, which imports what it needs: so `--help` stays free of torch, and no
command waits for the packages of another one.
"""

import sys
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Literal

from minbert.config import Long
from minbert.errors import InputError
from minbert.settings import Count, settings
from multitask.base import logger
from multitask.base.options import Computing
from multitask.base.runs import locate_model, replaced_files_named, run_of
from multitask.cli.arguments import POSITIONAL, Command, changed
from multitask.data.tables import ROWS_PER_BATCH, Format
from multitask.models.settings import Pooling
from multitask.use.hard_negatives import HardNegatives

FOUND = ("query", "rank", "score", "row", "text")
"""Columns of what `search` writes."""


@settings
class Data:
    """The data that a model is used with."""

    data: Path | None = field(default=None, kw_only=True)
    """Folder with the course's files. Default: the data that the run was trained with; data/sample without a run."""
    tasks_file: Path | None = field(default=None, kw_only=True)
    """Tasks file, which declares tasks of your own. It takes the place of --data."""


@settings
class ModelOption:
    """The model that a command uses."""

    model: str = field(kw_only=True)
    """The model: a run (`last`: the latest one), a model folder, all-minilm-l6-v2 or a hub id."""
    revision: str | None = field(default=None, kw_only=True)
    """Revision of a hub id: a branch, tag or commit."""


@settings
class BestOn:
    """Which of a run's models."""

    best_on: str | None = field(default=None, kw_only=True)
    """Which of a run's kept models: the best on this task or on `overall`. Default: the run's leading model."""


@settings
class PoolingOption:
    """How sentences are embedded."""

    pooling: Pooling = field(default="auto", kw_only=True)
    """Sentence embedding: the first token (`cls`) or the `mean` of all tokens. `auto` uses what the model was trained
    with."""


@settings
class _Written:
    file_format: Format = field(default_factory=Format, kw_only=True)


@settings
class Predict(Computing, BestOn, Data):
    """Predict the rows of a file: its columns are kept, and columns with predictions are added.

    Without --input, write prediction files for the dev and test sets of the tasks, which --data or --tasks-file names.
    With --input, the file is read as the training rows were, unless --tasks-file says how it is written: encoding,
    decimal mark, names of missing values, separator.
    """

    model: Path = field(kw_only=True)
    """The model: a run (`last`: the latest one) or a model folder."""
    task: tuple[str, ...] = ()
    """Tasks to predict. Default: all tasks of the model whose columns the file has."""
    input: Path | None = None
    """File to predict: csv, tsv, jsonl, parquet, xlsx, or txt with a sentence a line (of a pair: two with a tab between
    them). `-` reads standard input."""
    output: Path | None = None
    """File to write, in the format of its name. `-` writes to standard output. Default: standard output; without
    --input, a folder in predictions/ with the model's name."""
    text: tuple[str, ...] = ()
    """Column of the sentences, or the two columns of pairs. Or columns and fixed words, such as "{title}. {text}".
    Default: as the task declares."""
    probabilities: bool = False
    """Also add a column with the probability of each class."""
    prefix: str = ""
    """Text in front of the names of the added columns."""
    input_format: Literal["txt", "csv", "tsv", "jsonl"] = "txt"
    """Format of standard input."""
    separator: str | None = None
    """What separates the fields. Default: a tab in .tsv, otherwise as the training file or --tasks-file declares, or a
    comma."""

    def __post_init__(self) -> None:
        of_input = changed(self, "task", "text", "probabilities", "prefix", "separator", "input_format")
        if self.input is None and of_input:
            raise InputError(f"{of_input}: only with --input; without it all dev and test sets are predicted")
        if self.input is None and str(self.output) == "-":
            raise InputError("--output - needs --input; without it several files are written into a folder")
        if self.input_format != "txt" and str(self.input) != "-":
            raise InputError("--input-format is for --input -; a file has the format of its name")
        if self.input is not None and self.data is not None:
            raise InputError("--data is for dev and test sets, not for --input; leave one out")


def predict(options: Predict) -> None:
    """Predict; print the files written."""
    _predict_sets(options) if options.input is None else _predict_input(options, options.input)


def _predict_input(options: Predict, source: Path) -> None:
    from multitask.models.multitask_model import MultitaskModel, tasks_for
    from multitask.tasks.declarations import chosen_tasks
    from multitask.use.predict import predict_file

    output = options.output or Path("-")
    folder = locate_model(options.model, best_on=options.best_on)
    model = MultitaskModel.load(folder, options.device, options.precision)
    named = tasks_for(model, None, options.task)
    declared = chosen_tasks(options.tasks_file, tuple(named)) if options.tasks_file else None
    read = options.text, declared, options.separator, f".{options.input_format}"
    with replaced_files_named(output):
        predict_file(model, options.task, source, output, *read, options.probabilities, options.prefix)
    if output != Path("-"):
        print(output)


def _predict_sets(options: Predict) -> None:
    from multitask.use.model_data import data_for
    from multitask.use.predict import write_prediction_files

    locate_model(options.model, best_on=options.best_on)  # says what is wrong with the model before the data's path
    data = data_for(options.model, options.tasks_file or options.data).path
    name_parts = (run_of(options.model.resolve()).name, options.model.resolve().name, options.best_on)
    output = options.output or Path("predictions", "-".join(dict.fromkeys(filter(None, name_parts))))
    with replaced_files_named(output):
        paths = write_prediction_files(options.model, data, output, options.best_on, options.device, options.precision)
    for path in paths:
        print(path)


@settings
class Embed(_Written, Computing, PoolingOption, ModelOption):
    """Write the embeddings of a file's sentences as a NumPy array of shape [sentences, hidden].

    The file may be larger than memory. OUTPUT.json, next to the array, names the model and the text.
    """

    text: Path = field(kw_only=True, metadata=POSITIONAL)
    """Text file with one sentence a line, `-`: standard input; or a table (csv, tsv, jsonl, parquet, xlsx) with
    --column."""
    output: Path = field(kw_only=True, metadata=POSITIONAL)
    """File to write; its name ends in .npy."""
    model: str = field(default="all-minilm-l6-v2", kw_only=True)
    column: str | None = None
    """Column of the sentences of a table. Or columns and fixed words, such as "{title}. {text}", or "query: {text}" of
    the lines of a text file."""
    dimensions: Count | None = None
    """Keep only the first so many numbers of each embedding. Choose a size that was trained with --matryoshka, if there
    is one. Default: all."""
    normalize: bool = False
    """Scale every embedding to length 1."""
    dtype: Literal["float32", "float16"] = "float32"
    """How numbers are stored. With float16, cosines change by less than 0.001."""
    long: Long = "head"
    """How texts with more tokens than the model takes are read: `head`: the first tokens; `middle`: the first
    quarter and the last three quarters of the room; `windows`: all, in overlapping windows whose embeddings are
    averaged."""

    def __post_init__(self) -> None:
        if self.output.suffix != ".npy":
            raise InputError(f"{self.output}: expected a name that ends in .npy")


def embed(options: Embed) -> None:
    """Embed and write; print what was written."""
    from multitask.models.sentence_encoder import SentenceEncoder, load_encoder
    from multitask.use.embed import embed_file

    encoder = load_encoder(options.model, options.revision, options.pooling, options.device, options.precision)
    how = options.normalize, options.dtype, options.dimensions, options.file_format, options.long
    count, width = embed_file(encoder, options.text, options.output, options.column, *how)
    reads_windows = isinstance(encoder, SentenceEncoder) and options.long != "windows"
    encoder.counts.warn(options.text, " (--long windows reads all)" * reads_windows)
    print(f"{options.output}: {count} embeddings of size {width}")


@settings
class Search(_Written, Computing, PoolingOption, ModelOption):
    """Print the sentences of an index that are nearest to queries by cosine, as JSON lines.

    A line has the query, the rank (from 1), the score, the row of the sentence in the text (from 0), and the sentence.
    Sentences with equal scores come in the order of their rows.
    """

    index: Path = field(kw_only=True, metadata=POSITIONAL)
    """The .npy file that `multitask embed` wrote; its text file must still be there."""
    queries: Path = field(kw_only=True, metadata=POSITIONAL)
    """Text file with one query a line, `-`: standard input; or a table (csv, tsv, jsonl, parquet, xlsx) with
    --column."""
    model: str = field(default="all-minilm-l6-v2", kw_only=True)
    """The model that wrote the index: a run (`last`: the latest one), a model folder, all-minilm-l6-v2 or a hub id."""
    column: str | None = None
    """Column of the sentences of a table. It is for a table of queries. Or columns and fixed words, such as "query:
    {text}" of the lines of a text file."""
    top: Count = 10
    """Sentences to print for each query."""
    output: Path = Path("-")
    """File to write: jsonl, csv, tsv or parquet. Default: standard output."""


def search(options: Search) -> None:
    """Search and write; print the file written."""
    from multitask.data.texts import prompt_of
    from multitask.data.write_tables import STANDARD_OUTPUT, check_output, table_writer
    from multitask.models.sentence_encoder import load_encoder
    from multitask.use.embed import Index, sentences
    from multitask.use.search import search as nearest

    check_output(options.output)
    queries = list(sentences(options.queries, options.column, options.file_format))
    if not queries:
        raise InputError(f"{options.queries}: no query; expected at least one")
    encoder = load_encoder(options.model, options.revision, options.pooling, options.device, options.precision)
    index = Index.open(options.index, encoder)
    prompt, width = prompt_of(options.column), index.vectors.shape[1]
    vectors = encoder.encode(queries, dimensions=width, prompt=prompt, long=index.long)
    found = nearest(vectors, index.vectors, options.top)
    encoder.counts.warn(options.queries)
    texts = index.texts_of(set(found.indices.ravel().tolist()))
    with replaced_files_named(options.output), table_writer(options.output, FOUND, form=".jsonl") as write:
        for query, scores, rows in zip(queries, found.scores.tolist(), found.indices.tolist(), strict=True):
            shown = (round(score, 6) for score in scores)  # further digits of equal texts depend on their batches
            near = enumerate(sorted(zip(shown, rows, strict=True), key=lambda hit: (-hit[0], hit[1])), start=1)
            values = ((query, rank, score, row, texts[row]) for rank, (score, row) in near)
            write([dict(zip(FOUND, value, strict=True)) for value in values])
    if options.output != STANDARD_OUTPUT:
        print(options.output)


@settings
class Mine(_Written, HardNegatives, Computing, PoolingOption, ModelOption):
    """Find hard negatives for pairs of sentences: near texts that are not known to mean the same.

    An anchor's negatives are never the anchor itself, a sentence that it has a pair with, or a copy of these, whatever
    its case, spaces and punctuation. With quora or pairs, nor is a sentence that further pairs link with it.
    """

    pairs: str = field(kw_only=True, metadata=POSITIONAL)
    """Table of pairs (csv, tsv, jsonl, parquet, xlsx), text file with two sentences a line and a tab between them, or a
    source of `pretrain` in --data: quora, nli or pairs."""
    output: Path = field(kw_only=True, metadata=POSITIONAL)
    """File to write: csv, tsv, jsonl or parquet."""
    corpus: Path | None = None
    """Where negatives come from: a text file with one sentence a line, a table with --column, or the .npy file that
    `multitask embed` wrote. Default: all sentences of the pairs."""
    model: str = field(default="all-minilm-l6-v2", kw_only=True)
    """The model that decides what is near: a run (`last`: the latest one), a model folder, all-minilm-l6-v2 or a hub
    id."""
    text: tuple[str, ...] = ()
    """Column of the sentences, or the two columns of pairs. Or columns and fixed words, such as "{title}. {text}".
    Default: sent0 and sent1, or sentence1 and sentence2."""
    column: str | None = None
    """Column of the sentences of a table. It is for --corpus. Or columns and fixed words, such as "passage: {text}"."""
    data: Path = Path("data/sample")
    """Where sources are: a folder with the tasks' files, or a tasks file."""
    format: Literal["triplets", "pairs"] = "triplets"
    """`triplets`: sent0, sent1, hard_neg, which `pretrain --sources nli` reads as nli_triplets.csv. `pairs`: sentence1,
    sentence2 and label (1 or 0), for a task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.text) not in (0, 2):
            raise InputError(f"--text names {len(self.text)} columns; expected two, of anchors and of positives")
        if self.column is not None and self.corpus is None:
            raise InputError("--column names a column of --corpus, which is not given; --text names those of the pairs")
        if self.column is not None and self.corpus is not None and self.corpus.suffix == ".npy":
            raise InputError(f"--column is for a table, but --corpus is an index, {self.corpus}; leave it out")


def mine(options: Mine) -> None:
    """Find negatives and write; print what was written."""
    from multitask.data.write_tables import STANDARD_OUTPUT, check_output, table_writer
    from multitask.models.sentence_encoder import load_encoder
    from multitask.tasks.sources import PAIRED
    from multitask.use.mine import COLUMNS, formats_of, index_of, mined_rows, negatives_of, read_pairs

    check_output(options.output)
    if options.pairs not in PAIRED and (found := changed(options, "data")):
        raise InputError(f"{found}: only with a source of `pretrain`, not with a file of pairs; leave it out")
    of_pairs, of_corpus = formats_of(options.pairs, options.corpus, options.column, options.file_format)
    pairs, written, same_meaning = read_pairs(options.pairs, options.text, options.data, of_pairs)
    encoder = load_encoder(options.model, options.revision, options.pooling, options.device, options.precision)
    columns, count = COLUMNS[options.format], 0
    with index_of(encoder, pairs, options.corpus, options.column, options.output, of_corpus, written) as corpus:
        negatives = negatives_of(encoder, pairs, corpus, options, same_meaning, written)
        having = sum(map(bool, negatives.values()))
        if not having:
            raise InputError("no text is left as a negative; widen --ranks, or change --margin and --relative-margin")
        rows = mined_rows(pairs, negatives, corpus, options.format, written)
        with replaced_files_named(options.output), table_writer(options.output, columns) as write:
            while block := list(islice(rows, ROWS_PER_BATCH)):
                write([dict(zip(columns, row, strict=True)) for row in block])
                count += len(block)
    summary = f"{options.output}: {count} rows; {having} of {len(negatives)} anchors have negatives"
    print(summary, file=sys.stderr if options.output == STANDARD_OUTPUT else sys.stdout)


@settings
class Export(PoolingOption, ModelOption):
    """Write a model and its tokenizer as a folder that other libraries load.

    Without --with-heads it is the encoder alone, for sentence embeddings; with it, an ONNX file predicts all tasks.
    """

    output: Path = field(kw_only=True)
    """Folder to write: a new or empty one, or an earlier export, which is replaced."""
    to: Literal["transformers", "sentence-transformers", "onnx"] = "transformers"
    """`transformers`: for AutoModel and AutoTokenizer; `sentence-transformers`: with pooling and a model card, for
    SentenceTransformer; `onnx`: model.onnx from token ids to embeddings, checked with ONNX Runtime."""
    with_heads: bool = False
    """Export predictions of the tasks instead of embeddings. Only with --to onnx."""
    data: Path | None = None
    """Folder with the course's files: an ONNX export with heads is checked on its dev sets. Without it, the export
    is checked on generated sentences."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own. Its dev sets are used instead of those of --data."""
    int8: bool = False
    """Store an ONNX export with heads in 8 bits, and show how much that changes the scores on the dev sets."""
    normalize: bool = False
    """Scale every embedding to length 1. Like --pooling, not for transformers."""

    def __post_init__(self) -> None:
        if self.with_heads and self.to != "onnx":
            raise InputError(f"--with-heads: only with --to onnx; {self.to} has no such heads")
        if (found := changed(self, "pooling", "normalize")) and (self.with_heads or self.to == "transformers"):
            raise InputError(f"{found}: only for embeddings, --to sentence-transformers or onnx without --with-heads")
        if (found := changed(self, "int8", "data", "tasks_file")) and not self.with_heads:
            raise InputError(f"{found}: only with --to onnx --with-heads")
        if self.int8 and not (self.data or self.tasks_file):
            raise InputError("--int8 needs --data or --tasks-file: it shows its loss of score on their dev sets")


def export(options: Export) -> None:
    """Write the folder and print its name."""
    from multitask.data.contamination import TrainedOn
    from multitask.models.multitask_model import MultitaskModel
    from multitask.models.sentence_encoder import SentenceEncoder
    from multitask.models.sentence_transformers_encoder import further_modules, scales
    from multitask.use import export as exports
    from multitask.use.export_heads import export_onnx_with_heads
    from multitask.use.model_card import model_card

    exports.check_export_folder(options.output)
    folder = locate_model(options.model, options.revision)
    trained_on = TrainedOn.of_folder(folder, options.model)
    if options.with_heads:
        model, data = MultitaskModel.load(folder, "cpu", "fp32"), options.tasks_file or options.data
        print(export_onnx_with_heads(model, options.output, trained_on, data, options.int8))
    else:
        pooling, normalize = options.pooling, options.normalize or scales(folder)
        if options.to == "transformers" and (further := further_modules(folder)) is not None:
            pooling = "mean"  # any, as the encoder alone is written
            logger.warning("%s; the export is the encoder alone", further)
        encoder = SentenceEncoder.load(options.model, options.revision, pooling, "cpu", "fp32")
        match options.to:
            case "transformers":
                exports.export_transformers(encoder, options.output, trained_on)
            case "sentence-transformers":
                card = model_card(options.model, options.revision, encoder, normalize)
                exports.export_sentence_transformers(encoder, options.output, card, normalize, trained_on)
            case "onnx":
                exports.export_onnx(encoder, options.output, normalize, trained_on)
    print(options.output)


_PREDICT = (
    *("model", "input", "output", "task", "data", "tasks_file"),
    *("text", "probabilities", "input_format", "separator", "device"),
)
_FILES = ("pooling", "separator", "encoding", "sheet", "device")
_EMBED = ("text", "output", "model", "column", "long", "dimensions", "normalize", "dtype", *_FILES)
_MINE = ("pairs", "output", "model", "corpus", "text", "column", "data", "format", *("ranks", "margin"))
_EXPORT = ("model", "output", "to", "with_heads", "data", "tasks_file", "int8", "normalize", "pooling")
COMMANDS = (
    Command("predict", Predict, predict, common=_PREDICT),
    Command("embed", Embed, embed, common=_EMBED),
    Command("search", Search, search, common=("index", "queries", "model", "column", "top", "output", *_FILES)),
    Command("mine", Mine, mine, common=(*_MINE, "relative_margin", "negatives", "sampling")),
    Command("export", Export, export, common=_EXPORT),
)
