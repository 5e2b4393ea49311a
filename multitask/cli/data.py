"""`multitask data`: copy the sample, check, fetch and split data folders."""

import sys
from dataclasses import field
from pathlib import Path

from minbert.errors import InputError
from minbert.settings import settings
from multitask.cli.command import DATA, Command, Group
from multitask.cli.options import POSITIONAL


@settings
class Check:
    """Check data: rows, labels, lengths, duplicates, overlap between splits and tasks. Exits with 2 on errors."""

    folder: Path | None = field(default=None, metadata=POSITIONAL)
    """Data folder of the course's tasks. Give either this or --tasks-file."""
    tasks_file: Path | None = None
    """Tasks file, which declares tasks of your own."""
    model: str = "all-minilm-l6-v2"
    """The model whose tokenizer counts the tokens."""
    max_length: int | None = None
    """Report the share of sentences with more tokens, which would be cut. Default: the model's limit."""


def check(options: Check) -> int:
    """Print what the files hold and what is wrong with them."""
    from minbert.tokenizer import load_tokenizer
    from multitask.runs.artefact import locate_model
    from multitask.tasks.check import check_data

    data = options.tasks_file or options.folder
    if data is None or (options.folder and options.tasks_file):
        raise InputError("expected either a data folder or --tasks-file")
    tokenizer = load_tokenizer(str(locate_model(options.model)))
    report = check_data(data, tokenizer, options.max_length)
    print(report.render())
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


def fetch(options: Fetch) -> int:
    """Download data sets; print the files and the terms of use."""
    from multitask.data.fetch import fetch, load_sources

    sources = load_sources()
    for path in fetch(sources, options.folder, options.sets):
        print(path)
    for source in sources:
        if not options.sets or source.name in options.sets:
            print(f"terms of {source.name}: {source.terms}")
    return 0


@settings
class Domains:
    """Write the captions and the news of the course's similarity training set into files of their own.

    SentEval's copy of STS Benchmark tells which sentences are captions and which are news.
    """

    folder: Path = field(metadata=POSITIONAL)
    """Data folder with sts-train.csv."""
    suites_data: Path = Path("data/senteval")
    """SentEval's data folder."""


def domains(options: Domains) -> int:
    """Write a text file for each domain."""
    from multitask.evaluation.captions_and_news import write_captions_and_news

    for path, count in write_captions_and_news(options.folder, options.suites_data).items():
        print(f"{path}: {count:,} sentences")
    return 0


@settings
class Sample:
    """Copy the sample data that comes with the package; a checkout has it in data/ already."""

    folder: Path = Path("data")
    """Folder to write. Commands look for the sample in data/sample."""


def sample(options: Sample) -> int:
    """Copy the sample data; print the folders."""
    from multitask.data.sample import copy_sample

    for path in copy_sample(options.folder):
        print(path)
    return 0


COMMAND = Group(
    "data",
    "Check a data folder, copy the sample, download data sets, or split similarity data by domain.",
    (
        Command("check", Check, check),
        Command("sample", Sample, sample),
        Command("fetch", Fetch, fetch),
        Command("domains", Domains, domains),
    ),
    DATA,
)
