"""The data sets of each suite of frozen embeddings, and how they are read. Imports neither torch nor numpy."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from multitask.runtime.lazy import function_named


@dataclass(frozen=True)
class DataSet:
    """One data set of the folder."""

    name: str  # SentEval's name of the set
    column: str  # its heading in the papers' tables
    files: tuple[str, ...]  # paths within the data folder
    reader: str  # `module:function` of this package, from the files' full paths to the data

    def paths(self, folder: Path) -> list[Path]:
        """The files' full paths."""
        return [folder / name for name in self.files]

    def read(self, paths: Sequence[Path]) -> Any:
        """The data in the files. Raises InputError for a malformed file."""
        return function_named(f"{__package__}.{self.reader}")(paths)


def _sts_year(year: int, *subsets: str) -> DataSet:
    folder = f"STS/STS{year}-en-test"
    files = [f"{folder}/STS.{kind}.{subset}.txt" for subset in subsets for kind in ("input", "gs")]
    return DataSet(f"STS{year}", f"STS{year}", tuple(files), "senteval_files:read_sts")


STS_SETS: tuple[DataSet, ...] = (
    _sts_year(12, "MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    _sts_year(13, "FNWN", "headlines", "OnWN"),
    _sts_year(14, "deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    _sts_year(15, "answers-forums", "answers-students", "belief", "headlines", "images"),
    _sts_year(16, "answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
    DataSet("STSBenchmark", "STS-B", ("STS/STSBenchmark/sts-test.csv",), "senteval_files:read_sts_benchmark"),
    DataSet("SICKRelatedness", "SICK-R", ("SICK/SICK_test_annotated.txt",), "senteval_files:read_sick"),
)
TRANSFER_SETS: tuple[DataSet, ...] = (
    DataSet("MR", "MR", ("MR/rt-polarity.neg", "MR/rt-polarity.pos"), "senteval_files:read_two_classes"),
    DataSet("CR", "CR", ("CR/custrev.neg", "CR/custrev.pos"), "senteval_files:read_two_classes"),
    DataSet("SUBJ", "SUBJ", ("SUBJ/subj.objective", "SUBJ/subj.subjective"), "senteval_files:read_two_classes"),
    DataSet("MPQA", "MPQA", ("MPQA/mpqa.neg", "MPQA/mpqa.pos"), "senteval_files:read_two_classes"),
    DataSet(
        "SST2",
        "SST",
        tuple(f"SST/binary/sentiment-{split}" for split in ("train", "dev", "test")),
        "senteval_files:read_sst",
    ),
    DataSet("TREC", "TREC", ("TREC/train_5500.label", "TREC/TREC_10.label"), "senteval_files:read_trec"),
    DataSet(
        "MRPC", "MRPC", ("MRPC/msr_paraphrase_train.txt", "MRPC/msr_paraphrase_test.txt"), "senteval_files:read_mrpc"
    ),
)
RETRIEVAL_SETS: tuple[DataSet, ...] = (
    DataSet("QuoraRetrieval", "Quora", ("quora-dev.csv",), "retrieval_sets:read_quora"),
    DataSet("SICKRetrieval", "SICK", ("SICK/SICK_test_annotated.txt",), "retrieval_sets:read_related"),
)

TaskSuite = Literal["sts", "transfer", "retrieval"]
SETS: Mapping[TaskSuite, Sequence[DataSet]] = {
    "sts": STS_SETS,
    "transfer": TRANSFER_SETS,
    "retrieval": RETRIEVAL_SETS,
}


def missing_files(sets: Sequence[DataSet], folder: Path) -> dict[str, str]:
    """For each data set that lacks a file, the first one missing. A warning names them, unless all lack one."""
    absent = {entry.name: [path for path in entry.paths(folder) if not path.is_file()] for entry in sets}
    missing = {task: str(paths[0]) for task, paths in absent.items() if paths}
    if len(missing) < len(sets):
        for task, path in missing.items():
            logging.getLogger("multitask").warning("%s: no such file; %s is left out", path, task)
    return missing
