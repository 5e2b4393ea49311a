"""Take the runs of published tables into a folder of runs, from which further seeds go on.

    python -m scripts.published_runs NAME RUNS

NAME is one of docs/studies/results/runs, or another file of `scripts.gpu_grid`. NAME.parquet has a line for each text
file of each run (run, file, text), without models, and NAME-answers.parquet one for each answer to a dev example (run,
task, example, label, prediction).
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from minbert.errors import InputError
from minbert.files import atomic_file, read_arrays, read_text, write_text
from multitask.base.runs import DONE, Run, check_names
from multitask.cli.main import exit_code
from multitask.data.messages import reason
from multitask.experiments.grid_frames import answer_frame, read_answers, write_answers

PUBLISHED = Path(__file__).parents[1] / "docs" / "studies" / "results" / "runs"
ANSWERS = "predictions.npz"
"""The file of a run with its answers. Its text in the frame says the types of the arrays."""
TEXTS = (".json", ".jsonl", ".csv")


def answers_of(file: Path) -> Path:
    """The file of answers next to that of runs."""
    return file.with_name(f"{file.stem}-answers.parquet")


def pack(folder: Path, file: Path, **pages: int) -> None:
    """Write the complete runs of a folder, and its record, as two frames; `pages` is for `write_answers`."""
    lines, answers = (
        [("", path.name, read_text(path)) for path in sorted(folder.glob("*.json"))],
        list[pandas.DataFrame](),
    )
    for run in sorted(path.parent for path in folder.glob(f"*/{DONE}")):
        texts = sorted(path for path in run.rglob("*") if path.suffix in TEXTS)
        lines += [(run.name, path.relative_to(run).as_posix(), read_text(path)) for path in texts]
        lines.append((run.name, DONE, str(Run(run).seconds)))
        if (run / ANSWERS).is_file():
            arrays = read_arrays(run / ANSWERS)
            lines.append((run.name, ANSWERS, json.dumps({name: str(array.dtype) for name, array in arrays.items()})))
            tasks = [name.removesuffix("_labels") for name in arrays if name.endswith("_labels")]
            answers += [answer_frame(run.name, t, arrays[f"{t}_labels"], arrays[f"{t}_predictions"]) for t in tasks]
    with atomic_file(file) as temporary:
        frame = pandas.DataFrame(lines, columns=["run", "file", "text"])
        frame.to_parquet(temporary, index=False, compression="zstd", compression_level=19)
    write_answers(answers_of(file), answers, **pages)


def unpack(file: Path, folder: Path) -> None:
    """Write the runs of two frames into a folder, but for those that are complete there, perhaps with their models.

    Raises InputError for another file, or if the folder has another record of the preset, before anything is written.
    """
    try:
        frame = pandas.read_parquet(file, columns=["run", "file", "text"])
    except ValueError as error:
        raise InputError(f"{file}: no file of runs ({reason(error)})") from None
    check_names(filter(None, frame.run), file)
    answers = read_answers(answers_of(file))
    complete = {run for run in frame.run.unique() if run and Run(folder / run).done}
    files = {(one.run, one.file): one.text for one in frame[~frame.run.isin(complete)].itertuples()}
    for name in (name for run, name in files if not run):
        if (own := folder / name).is_file() and read_text(own) != files["", name]:
            raise InputError(f"{own}: a record of other tables, which would be lost; take a new folder")
    for run, name in files:
        if name not in (DONE, ANSWERS):
            write_text(folder / run / name, files[run, name])
    arrays: dict[str, dict[str, Any]] = defaultdict(dict)
    for (run, task), both in ((key, both) for key, both in answers.items() if key[0] not in complete):
        kinds = json.loads(files[run, ANSWERS])
        named = zip((f"{task}_labels", f"{task}_predictions"), both, strict=True)
        arrays[run] |= {name: values.astype(kinds[name]) for name, values in named}
    for run, of_run in arrays.items():
        np.savez(folder / run / ANSWERS, **of_run)
    for run in [run for run, name in files if name == DONE]:
        Run(folder / run).finish(float(files[run, DONE]))


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("runs", type=Path)
    options = parser.parse_args()
    known = {file.stem: file for file in sorted(PUBLISHED.glob("*.parquet")) if "answers" not in file.stem}
    file = known.get(options.name, Path(options.name))
    if not file.is_file():
        raise InputError(f"{options.name}: expected a file of runs, or one of {', '.join(known)}")
    unpack(file, options.runs)


if __name__ == "__main__":
    sys.exit(exit_code(main))
