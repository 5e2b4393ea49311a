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
class Sample:
    """Copy the sample data that comes with the package; a checkout has it in data/ already."""

    folder: Path = Path("data")
    """Folder to write. Commands look for the sample in data/sample."""


NAMED = {"check": Check, "sample": Sample, "fetch": Fetch}
DATA_COMMANDS = Group(
    "data",
    "Check a data folder, copy the sample, or download data sets.",
    tuple(Command(name, options, f"multitask.cli.data:{name}") for name, options in NAMED.items()),
    DATA,
)
