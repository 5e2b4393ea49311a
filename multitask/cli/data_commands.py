"""The options of `multitask data`, which `multitask.cli.data` carries out. Imports nothing heavy."""

from dataclasses import field
from pathlib import Path

from minbert.errors import InputError
from minbert.settings import settings
from multitask.cli.arguments import DATA, POSITIONAL, Command, Group


@settings
class Check:
    """Check data: rows, labels, lengths, duplicates, overlap between splits and tasks. Exits with 2 on errors.

    In the table, `dropped` rows lack a label or a text, or repeat others that a task drops; `repeated` rows have the
    texts of an earlier row; tokens are the length of a text (median, 95th percentile, longest).
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    """Data folder of the course's tasks. Give either this or --tasks-file."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own."""
    model: str = "all-minilm-l6-v2"
    """The model whose tokenizer counts the tokens."""
    max_length: int | None = None
    """Report the share of sentences with more tokens, which would be cut. Default: the model's limit."""

    def __post_init__(self) -> None:
        if (self.folder is None) == (self.tasks_file is None):
            raise InputError("expected either a data folder or --tasks-file")


@settings
class Fetch:
    """Download the published data sets into a folder and verify their checksums."""

    folder: Path = Path("data/real")
    """Folder to write."""
    sets: tuple[str, ...] | None = None
    """Names of data sets. Default: all."""


@settings
class Domains:
    """Write the captions and the news of the course's similarity training set into files of their own.

    SentEval's copy of STS Benchmark tells which sentences are captions and which are news.
    """

    folder: Path = field(metadata=POSITIONAL)
    """Data folder with sts-train.csv."""
    suites_data: Path = Path("data/senteval")
    """SentEval's data folder."""


@settings
class Phrases:
    """Copy the course's data to a new folder, with phrases of the Stanford Sentiment Treebank for training.

    The treebank labels every phrase of a sentence. Whole sentences stand in the new file three times. Training rows
    that a dev or test set has are left out.
    """

    folder: Path = field(metadata=POSITIONAL)
    """Data folder with the files of sentiment, paraphrase and similarity."""
    trees: Path = field(metadata=POSITIONAL)
    """train.txt of the treebank, from trainDevTestTrees_PTB.zip at https://nlp.stanford.edu/sentiment."""
    output: Path = field(metadata=POSITIONAL)
    """Folder to write."""


@settings
class Sample:
    """Copy the sample data that comes with the package; a checkout has it in data/ already."""

    folder: Path = Path("data")
    """Folder to write. Commands look for the sample in data/sample."""


NAMED = {"check": Check, "sample": Sample, "fetch": Fetch, "domains": Domains, "phrases": Phrases}
DATA_COMMANDS = Group(
    "data",
    "Check a data folder, copy the sample, download data sets, or derive others from them.",
    tuple(Command(name, options, f"multitask.cli.data:{name}") for name, options in NAMED.items()),
    DATA,
)
