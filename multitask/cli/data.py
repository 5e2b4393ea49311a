"""`multitask data`: check data, copy the sample, fetch data sets."""

import sys
from dataclasses import field
from pathlib import Path

from minbert.errors import InputError
from minbert.settings import Count, settings
from multitask.cli.arguments import DATA, POSITIONAL, Command, Group


@settings
class Check:
    """Check data: rows, labels, lengths, duplicates, overlap between splits. Exits with 2 on errors.

    Tasks of a tasks file are also compared with each other. In the table, `dropped` rows lack a label or a text, or
    repeat others that a task drops; `repeated` rows have the texts of an earlier row; tokens are the length of a text
    (median, 95th percentile, longest).
    """

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    """Data folder of the course's tasks. Give either this or --tasks-file."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own."""
    model: str = "all-minilm-l6-v2"
    """The model whose tokenizer counts the tokens."""
    max_length: Count | None = None
    """Report the share of sentences with more tokens. Default: the encoder's limit."""

    def __post_init__(self) -> None:
        if (self.folder is None) == (self.tasks_file is None):
            raise InputError("expected either a data folder or --tasks-file")
        if self.tasks_file is not None and self.tasks_file.is_dir():
            raise InputError(f"{self.tasks_file}: a folder; expected a file such as {self.tasks_file}/tasks.toml")


def check(options: Check) -> int:
    """Print what the files hold and what is wrong with them."""
    from minbert.tokenizer import load_tokenizer
    from multitask.base.runs import locate_model
    from multitask.tasks.check import check_data

    data = options.tasks_file or options.folder
    assert data is not None, "refused above"
    tokenizer = load_tokenizer(str(locate_model(options.model)))
    report = check_data(data, tokenizer, options.max_length)
    print(report.render())
    for hint in (*report.hints, *([] if report.problems else report.gaps)):
        print(f"warning: {hint}", file=sys.stderr)
    for problem in report.problems:
        print(f"error: {problem}", file=sys.stderr)
    return 2 if report.problems else 0


@settings
class Fetch:
    """Download the published data sets into a folder and verify their checksums."""

    folder: Path = Path("data/real")
    """Folder to write."""
    sets: tuple[str, ...] | None = None
    """Names of data sets. Default: all."""


def fetch(options: Fetch) -> None:
    """Download data sets; print the files and the terms of use."""
    from multitask.data.fetch import fetch as downloaded
    from multitask.data.fetch import load_sources

    sources = load_sources(options.sets or ())
    for path in downloaded(sources, options.folder):
        print(path)
    for name, terms in {source.name: source.terms for source in sources}.items():
        print(f"terms of {name}: {terms}")


@settings
class Sample:
    """Copy the sample data that comes with the package; a checkout has it in data/ already."""

    folder: Path = Path("data")
    """Folder to write. Commands look for the sample in data/sample."""


def sample(options: Sample) -> None:
    """Copy the sample data; print the folders."""
    from multitask.data.fetch import copy_sample

    for path in copy_sample(options.folder):
        print(path)


COMMAND = Group(
    "data",
    "Check a data folder, copy the sample, or download data sets.",
    (Command("check", Check, check), Command("sample", Sample, sample), Command("fetch", Fetch, fetch)),
    DATA,
)
