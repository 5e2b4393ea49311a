"""What a task's files look like: names, columns and the labels that are legal. Knows nothing of models or losses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclass(frozen=True)
class Schema:
    """The course's tab-separated file format of one task.

    Args:
        file_stem: files are `{file_stem}-train.csv`, `{file_stem}-dev.csv` and `{file_stem}-test-student.csv`.
        sentence_columns: one column for single sentences, two for pairs.
        label_column: absent from test files.
        minimum: lowest legal label.
        maximum: highest legal label.
        integral: whether labels must be whole numbers (`1.0` counts as 1).
    """

    file_stem: str
    sentence_columns: tuple[str, ...]
    label_column: str
    minimum: float
    maximum: float
    integral: bool

    def path(self, folder: Path, split: Split) -> Path:
        """Where the split's file lies in a data folder."""
        return folder / f"{self.file_stem}-{'test-student' if split == 'test' else split}.csv"
