"""`multitask data`: copy the sample, check, fetch and split data folders."""

import sys

from minbert.tokenizer import load_tokenizer
from multitask.base.runs import locate_model
from multitask.cli.data_commands import Check, Fetch, Sample
from multitask.data import fetch as published
from multitask.data.fetch import copy_sample
from multitask.tasks.check import check_data


def check(options: Check) -> int:
    """Print what the files hold and what is wrong with them."""
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


def fetch(options: Fetch) -> None:
    """Download data sets; print the files and the terms of use."""
    sources = published.load_sources(options.sets or ())
    for path in published.fetch(sources, options.folder):
        print(path)
    for name, terms in {source.name: source.terms for source in sources}.items():
        print(f"terms of {name}: {terms}")


def sample(options: Sample) -> None:
    """Copy the sample data; print the folders."""
    for path in copy_sample(options.folder):
        print(path)
