"""The tasks: their files, and the kind of each. A new task is one entry.

Example rows: sentiment "Effective but too-tepid biopic" -> 2; paraphrase ("How old is he?", "What is his age?") -> 1;
similarity ("A man is playing a guitar.", "A man plays a flute.") -> 2.4.
"""

from dataclasses import dataclass

from minbert.errors import InputError
from multitask.data.read_task_files import Schema
from multitask.tasks.kinds import Classification, Kind, PairClassification, PairRegression


@dataclass(frozen=True)
class Task:
    """One task.

    Args:
        name: the task's name in options and tables.
        schema: files, columns and legal labels.
        kind: loss, predictions and scores.
        prediction_stem: prediction files are `{prediction_stem}-{dev,test}-output.csv`.
        prediction_header: title of the second column of these files, with the course's spelling.
    """

    name: str
    schema: Schema
    kind: Kind
    prediction_stem: str
    prediction_header: str


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "sentiment",
            Schema("ids-sst", ("sentence",), "sentiment", 0, 4, integral=True),
            Classification(5),
            "sst",
            "Predicted_Sentiment",
        ),
        Task(
            "paraphrase",
            Schema("quora", ("sentence1", "sentence2"), "is_duplicate", 0, 1, integral=True),
            PairClassification(),
            "para",
            "Predicted_Is_Paraphrase",
        ),
        Task(
            "similarity",
            Schema("sts", ("sentence1", "sentence2"), "similarity", 0, 5, integral=False),
            PairRegression(5.0),
            "sts",
            "Predicted_Similiary",
        ),
        Task(
            "reviews",
            Schema("ids-cfimdb", ("sentence",), "sentiment", 0, 1, integral=True),
            Classification(2),
            "cfimdb",
            "Predicted_Sentiment",
        ),
    )
}


def task_named(name: str) -> Task:
    """The task with this name. Raises InputError, which lists the known names, if there is none."""
    if name not in TASKS:
        raise InputError(f'unknown task "{name}"; expected one of: {", ".join(TASKS)}')
    return TASKS[name]
