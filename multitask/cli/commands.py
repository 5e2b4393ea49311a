"""The options of commands that use or tune models. `multitask.cli.NAME` has the function that carries NAME out.

Imports nothing heavy, because `--help` imports it.
"""

from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from minbert.errors import InputError
from minbert.settings import Count, Seed, settings
from multitask.base.options import Computing, RunOptions
from multitask.cli.arguments import POSITIONAL, TRAIN, USE, Command, Group
from multitask.cli.data_commands import DATA_COMMANDS
from multitask.data.tables import Format
from multitask.models.settings import Pooling
from multitask.training.settings import ObjectiveConfig
from multitask.use.hard_negatives import HardNegatives

Positive = Annotated[float, Field(gt=0)]


@settings
class Data:
    """The data that a model is used with."""

    data: Path | None = field(default=None, kw_only=True)
    """Folder with the course's files. Default: the data that the run was trained with; data/sample without a run."""
    tasks_file: Path | None = field(default=None, kw_only=True)
    """Tasks file, which declares tasks of your own. Default: the course's tasks, with their files in --data."""


@settings
class _Model:
    model: str = field(kw_only=True)
    """The model: a run (`last`: the latest one), a model folder, all-minilm-l6-v2 or a hub id."""
    revision: str | None = field(default=None, kw_only=True)
    """Revision of a hub id: a branch, tag or commit."""


@settings
class _BestOn:
    best_on: str | None = field(default=None, kw_only=True)
    """Which of a run's kept models: the best on this task or on `overall`. Default: the run's leading model."""


@settings
class _Pooling:
    pooling: Pooling = field(default="auto", kw_only=True)
    """Sentence embedding: the first token (`cls`) or the `mean` of all tokens. `auto` uses what the model was trained
    with."""


@settings
class _Written:
    file_format: Format = field(default_factory=Format, kw_only=True)


@settings
class Evaluate(Computing, _Pooling, _BestOn, _Model, Data):
    """Score a model on the tasks' labelled sets, or its frozen embeddings on a suite of SentEval.

    An encoder without heads is scored on the pair tasks by cosine. Scores are written as JSON, those of a suite also as
    Markdown and LaTeX.
    """

    suite: Literal["multitask", "sts", "transfer", "retrieval", "geometry"] = "multitask"
    """`multitask`: the tasks' own sets. The others score frozen embeddings; their --data is SentEval's data folder.
    `sts`: seven similarity tasks by cosine (Spearman correlation); `transfer`: seven transfer tasks by logistic
    regression (accuracy); `retrieval`: finding sentences with the same meaning, in SICK and in a copy of the course's
    quora-dev.csv (nDCG at 10); `geometry`: how the sentences of the similarity tasks are spread (alignment, uniformity
    and others)."""
    split: Literal["train", "dev", "test"] = "dev"
    """Which sets of the tasks to score; they need labels. For the suite `multitask`."""
    input: Path | None = None
    """Labelled file to score instead: csv, tsv, jsonl, parquet or xlsx."""
    task: tuple[str, ...] = ()
    """Tasks to score. Default: all tasks of the model."""
    text: tuple[str, ...] = ()
    """Column of the sentences, or the two columns of pairs. Or columns and fixed words, such as "{title}. {text}".
    Default: as the task declares. With --input."""
    label: str | None = None
    """Column of the labels. Default: as the task declares. With --input."""
    separator: str | None = None
    """What separates the fields. Default: a comma in .csv and a tab in .tsv. With --input."""
    details: Path | None = None
    """Folder to write the worst errors into, and for classifications also the scores of each class, the confusion
    matrix, and the calibration with a reliability plot."""
    dimensions: tuple[Count, ...] = ()
    """Keep only the first so many numbers of each embedding. Each size, e.g. 192 96, gets a row below that of whole
    embeddings. For suites of frozen embeddings."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of the transfer tasks' folds."""
    output: Path | None = None
    """JSON file to write. Default: evaluation-SPLIT.json or evaluation-SUITE.json in the model's folder; for a hub id,
    in evaluations/. If the data is not the run's own, its name becomes a part of the file's name. Scores of --input go
    to evaluation-of-INPUT.json."""

    def __post_init__(self) -> None:
        if self.suite != "multitask" and self.data is None:
            raise InputError(f"--suite {self.suite} needs --data, SentEval's data folder")
        if self.suite == "multitask" and self.pooling != "auto":
            raise InputError("--pooling is for suites of frozen embeddings; the tasks' heads have their own")
        if self.suite == "multitask" and self.dimensions:
            raise InputError("--dimensions is for suites of frozen embeddings; the tasks' heads read whole embeddings")


@settings
class Predict(Computing, _BestOn, Data):
    """Predict the rows of a file: its columns are kept, and columns with predictions are added.

    Without --input, write prediction files for the dev and test sets of the tasks, which --data or --tasks-file names.
    With --input, the file is read as the training rows were, unless --tasks-file says how it is written: encoding,
    decimal mark, names of missing values, separator.
    """

    model: Path = field(kw_only=True)
    """The model: a run (`last`: the latest one) or a model folder."""
    task: tuple[str, ...] = ()
    """Tasks to predict. Default: all tasks of the model."""
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
    """What separates the fields. Default: a comma in .csv and a tab in .tsv."""

    def __post_init__(self) -> None:
        if self.input is None and (self.task or self.text or self.probabilities):
            raise InputError(
                "--task, --text and --probabilities need --input; without it all dev and test sets are predicted"
            )


@settings
class Embed(_Written, Computing, _Pooling, _Model):
    """Write the embeddings of a file's sentences as a NumPy array of shape [sentences, hidden].

    The file may be larger than memory. OUTPUT.json, next to the array, names the model and the text.
    """

    text: Path = field(kw_only=True, metadata=POSITIONAL)
    """Text file with one sentence a line; or a table (csv, tsv, jsonl, parquet, xlsx) with --column."""
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

    def __post_init__(self) -> None:
        if self.output.suffix != ".npy":
            raise InputError(f"{self.output}: expected a name that ends in .npy")


@settings
class Search(_Written, Computing, _Pooling, _Model):
    """Print the sentences of an index that are nearest to queries by cosine, as JSON lines.

    A line has the query, the rank (from 1), the score, the row of the sentence in the text (from 0), and the sentence.
    Sentences with equal scores come in the order of their rows.
    """

    index: Path = field(kw_only=True, metadata=POSITIONAL)
    """The .npy file that `multitask embed` wrote; its text file must still be there."""
    queries: Path = field(kw_only=True, metadata=POSITIONAL)
    """Text file with one query a line; or a table (csv, tsv, jsonl, parquet, xlsx) with --column."""
    model: str = field(default="all-minilm-l6-v2", kw_only=True)
    """The model that wrote the index: a run (`last`: the latest one), a model folder, all-minilm-l6-v2 or a hub id."""
    column: str | None = None
    """Column of the sentences of a table. It is for a table of queries. Or columns and fixed words, such as "query:
    {text}" of the lines of a text file."""
    top: Count = 10
    """Sentences to print for each query."""
    output: Path = Path("-")
    """File to write: jsonl, csv, tsv or parquet. Default: standard output."""


@settings
class Mine(_Written, HardNegatives, Computing, _Pooling, _Model):
    """Find hard negatives for pairs of sentences: near texts that are not known to mean the same.

    An anchor's negatives are never the anchor itself, a sentence that it has a pair with, or a copy of these, whatever
    its case, spaces and punctuation. Of quora and pairs, neither are sentences that further pairs link with it.
    """

    pairs: str = field(kw_only=True, metadata=POSITIONAL)
    """Table of pairs (csv, tsv, jsonl, parquet, xlsx), or a source of `pretrain` in --data: quora, nli or pairs."""
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


@settings
class Probe(Computing, _Model):
    """Show the gradient that an objective gives a model's embeddings: dissipation, weights of negatives, ratio."""

    data: Path = Path("data/sample")
    """Folder with the tasks' files and other sentences."""
    source: str = "unlabelled"
    """What to embed: dropout views of `unlabelled` sentences, of another text file (its name, ending in .txt) or of a
    task's training sentences; or `similar_pairs`, the pairs of the similarity dev set with a gold similarity of at
    least 4."""
    objective: ObjectiveConfig = ObjectiveConfig()
    """Loss on sentence pairs, with parameters, e.g. vicreg:dissipation=0.3,weight=0.05. --help-objective all lists the
    losses, --help-objective NAME explains one."""
    batch_size: Annotated[int, Field(ge=2)] = 64
    """Pairs in a batch."""
    batches: Count = 10
    """Most batches to probe."""
    seed: Seed = 0
    """Seed of the choice of rows and of dropout."""
    output: Path | None = None
    """JSON file to write with the values of every batch. Default: none."""


@settings
class Export(_Model):
    """Write a model and its tokenizer as a folder that other libraries load.

    Without --with-heads it is the encoder alone, for sentence embeddings. With --with-heads, an ONNX file predicts all
    tasks.
    """

    pooling: Pooling = field(default="auto", kw_only=True)
    """Sentence embedding: the first token (`cls`) or the `mean` of all tokens. `auto` uses what the model was trained
    with. Not for transformers."""
    output: Path = field(kw_only=True)
    """Folder to write: a new or empty one, or an earlier export, which is replaced."""
    to: Literal["transformers", "sentence-transformers", "onnx"] = "transformers"
    """`transformers`: for AutoModel and AutoTokenizer; `sentence-transformers`: with pooling and a model card, for
    SentenceTransformer; `onnx`: model.onnx from token ids to embeddings, checked with ONNX Runtime."""
    with_heads: bool = False
    """Export predictions of the tasks instead of embeddings. Only with --to onnx."""
    data: Path | None = None
    """Folder with the course's files: an ONNX export with heads is checked and scored on its dev sets. Without it,
    the export is checked on generated sentences."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own. Its dev sets are used instead of those of --data."""
    int8: bool = False
    """Store an ONNX export with heads in 8 bits, and show how much that changes the scores on the dev sets."""
    normalize: bool = False
    """Scale every embedding to length 1. Not for transformers."""

    def __post_init__(self) -> None:
        if self.with_heads and self.to != "onnx":
            raise InputError(f"--with-heads is for --to onnx, not for {self.to}, which has no such heads")
        if self.to == "transformers" and (self.normalize or self.pooling != "auto"):
            raise InputError("--pooling and --normalize are for sentence-transformers and onnx, not for transformers")
        if self.with_heads and (self.normalize or self.pooling != "auto"):
            raise InputError("--pooling and --normalize are for embeddings; the tasks' heads have their own pooling")
        if (self.int8 or self.data or self.tasks_file) and not self.with_heads:
            raise InputError("--int8, --data and --tasks-file are for --to onnx --with-heads")
        if self.int8 and not (self.data or self.tasks_file):
            raise InputError("--int8 needs --data or --tasks-file: it shows its loss of score on their dev sets")


@settings
class Tune:
    """Search for settings of finetune, and train the best ones with several seeds.

    Trials are scored on training rows that are held out; dev sets are read for the winner only. A trial stops early if
    its score is below the median of the others after the same epoch. Every trial is a run, so nothing is computed
    twice. The same command continues a search that was stopped, and extends it if --budget or --trials is larger.
    """

    space: Path = field(kw_only=True, metadata=POSITIONAL)
    """TOML file with settings of finetune by their names: a list of choices, a range such as { low = 1e-5, high = 1e-4,
    log = true }, or a fixed value. A setting that is a list itself takes a list of lists as choices."""
    budget: Positive | None = None
    """Minutes to search. Training of the winner comes on top."""
    trials: Count | None = None
    """Trials to search, earlier calls included."""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of each task's training rows to hold out and score on. All trials hold out the same rows."""
    seeds: Count = 3
    """Seeds to train the winner with: --seed and the next ones."""
    seed: Seed = 0
    """Seed of the search and of all trials."""
    start: str = "all-minilm-l6-v2"
    """Start weights: all-minilm-l6-v2, a folder, a run, or a hub id such as bert-base-uncased."""
    revision: str | None = None
    """Revision of a hub id: a branch, tag or commit."""
    data: Path = Path("data/sample")
    """Folder with the course's files."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own."""
    options: RunOptions = field(default_factory=RunOptions)

    def __post_init__(self) -> None:
        if self.budget is None and self.trials is None:
            raise InputError("expected --budget MINUTES or --trials N")


def _command(name: str, options: type, *common: str, extra: str = "", section: str = USE) -> Command:
    return Command(name, options, f"multitask.cli.{name}:{name}", section, common, extra)


_FILES = ("pooling", "separator", "encoding", "sheet", "device")
COMMANDS: tuple[Command | Group, ...] = (
    _command(
        *("evaluate", Evaluate, "model", "data", "tasks_file", "task", "split", "input", "suite", "details", "output"),
        *("best_on", "pooling", "device"),
    ),
    _command(
        *("tune", Tune, "space", "start", "data", "tasks_file", "budget", "trials", "held_out", "seeds", "seed"),
        *("runs", "device"),
        extra="tune",
        section=TRAIN,
    ),
    _command(
        *("predict", Predict, "model", "input", "output", "task", "data", "tasks_file", "text", "probabilities"),
        *("input_format", "separator", "device"),
    ),
    _command("embed", Embed, "text", "output", "model", "column", "dimensions", "normalize", "dtype", *_FILES),
    _command("search", Search, "index", "queries", "model", "column", "top", "output", *_FILES),
    _command(
        *("mine", Mine, "pairs", "output", "model", "corpus", "text", "column", "data", "format", "ranks", "margin"),
        *("relative_margin", "negatives", "sampling"),
    ),
    _command(
        "probe", Probe, "model", "data", "source", "objective", "batch_size", "batches", "seed", "output", "device"
    ),
    _command(
        "export", Export, "model", "output", "to", "with_heads", "data", "tasks_file", "int8", "normalize", "pooling"
    ),
    DATA_COMMANDS,
)
