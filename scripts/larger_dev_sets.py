"""Move a share of the training rows of the course's tasks to their dev sets: `python -m scripts.larger_dev_sets`.

    python -m scripts.larger_dev_sets DATA OUTPUT [--share 0.25]

For studies that train on few rows and need narrow intervals. Rows that share a sentence stay together, across tasks:
no row that is still for training has a sentence of a moved row. Sentences that the training and dev files of DATA share
stay in both. Test files are copied.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import get_args

from minbert.files import atomic_folder
from multitask.cli.main import exit_code
from multitask.data.write_tables import check_new_folder
from multitask.tasks import MAIN_TASKS
from multitask.tasks.declarations import chosen_tasks
from multitask.tasks.read_examples import held_out_sentences, load_rows
from multitask.tasks.task import Split
from studies.multitask_report.treebank_phrases import course_rows, write_course_rows


def enlarge(data: Path, output: Path, share: float) -> dict[str, tuple[int, int]]:
    """Write the new folder; the numbers of training and dev rows of each task.

    Raises InputError for a missing or malformed file, too few rows, or if the folder exists.
    """
    check_new_folder(output)
    tasks = chosen_tasks(data, MAIN_TASKS)
    rows = {name: load_rows(task, "train") for name, task in tasks.items()}
    parts = held_out_sentences(rows, share)
    sizes = {}
    with atomic_folder(output) as temporary:
        for name, task in tasks.items():
            training, moved = parts[name]
            dev = [*course_rows(task, load_rows(task, "dev")), *course_rows(task, rows[name].take(moved))]
            sizes[name] = len(training), len(dev)
            train_file, dev_file, test_file = (Path(task.files.splits[split].file) for split in get_args(Split))
            kept = [*course_rows(task, rows[name].take(training))]
            write_course_rows(temporary / train_file.name, task, kept)
            write_course_rows(temporary / dev_file.name, task, dev)
            shutil.copyfile(test_file, temporary / test_file.name)
    return sizes


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--share", type=float, default=0.25)
    options = parser.parse_args()
    for name, (training, dev) in enlarge(options.data, options.output, options.share).items():
        print(f"{name}: {training:,} training rows, {dev:,} dev rows")


if __name__ == "__main__":
    sys.exit(exit_code(main))
