"""Write SentEval's similarity pairs by kind of text: `python -m scripts.pairs_by_kind SENTEVAL OUTPUT`.

OUTPUT/KIND/sts-train.csv gets as many different pairs of each kind, drawn from the STS tasks of 2012 to 2016.
`kinds_of_text` of `studies.sparse_cse.stability` compares scores of heads and neurons between such folders.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas

from minbert.errors import InputError
from minbert.files import atomic_folder
from multitask.base.random_streams import generator
from multitask.cli.main import exit_code
from multitask.data.write_tables import check_new_folder
from multitask.evaluation.suite_data import read_sts

KINDS = {
    "captions": ("STS12/MSRvid", "STS14/images", "STS15/images"),
    "headlines": ("STS13/headlines", "STS14/headlines", "STS15/headlines"),
    "definitions": ("STS12/surprise.OnWN", "STS13/OnWN", "STS14/OnWN"),
    "forums": ("STS14/deft-forum", "STS15/answers-forums", "STS15/belief", "STS16/answer-answer"),
}


def write(senteval: Path, output: Path, pairs: int) -> None:
    """Write the folders. Raises InputError for a malformed file, too few pairs of a kind, or if the output exists."""
    check_new_folder(output)
    with atomic_folder(output) as temporary:
        for kind, sets in KINDS.items():
            subsets = [subset.split("/") for subset in sets]
            files = [f"{year}-en-test/STS.{part}.{name}.txt" for year, name in subsets for part in ("input", "gs")]
            rows = read_sts([senteval / "STS" / file for file in files])
            first, second = rows.columns
            frame = pandas.DataFrame({"sentence1": first, "sentence2": second, "similarity": rows.labels})
            frame = frame.drop_duplicates(["sentence1", "sentence2"], ignore_index=True)
            if len(frame) < pairs:
                raise InputError(
                    f"{senteval}: {len(frame):,} different pairs of {kind}; pass --pairs {len(frame)} or less"
                )
            drawn = generator(0, "pairs of a kind").permutation(len(frame))[:pairs]
            frame = frame.take(np.sort(drawn)).reset_index(drop=True)
            (temporary / kind).mkdir()
            frame.insert(0, "id", [f"{kind}-{row}" for row in frame.index])
            frame.to_csv(temporary / kind / "sts-train.csv", sep="\t")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("senteval", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--pairs", type=int, default=1408)
    options = parser.parse_args()
    if options.pairs < 1:
        raise InputError(f"--pairs is {options.pairs}; expected at least 1")
    write(options.senteval, options.output, options.pairs)


if __name__ == "__main__":
    sys.exit(exit_code(main))
