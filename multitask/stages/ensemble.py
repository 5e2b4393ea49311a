"""Combine several fine-tuned models: by votes on each task, or by the mean of their weights."""

import logging
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np

from minbert.errors import InputError
from minbert.files import write_json
from multitask.data.contamination import TrainedOn
from multitask.data.examples import Examples
from multitask.data.labelled_data import LabelledData
from multitask.evaluation.task_predictions import Estimates, estimate, located, tokenised, tune, write_predictions
from multitask.evaluation.task_scores import MultitaskScores, TaskEvaluation, labels_of, score
from multitask.models.multitask_model import MultitaskModel
from multitask.runs.artefact import Artefact, Weights
from multitask.runtime.device import Runtime
from multitask.runtime.options import RunOptions
from multitask.stages.run_stage import OpenRun, run_stage
from multitask.stages.settings.ensemble import STAGE, EnsembleConfig
from multitask.stages.votes_and_soups import (
    Member,
    blend,
    check_soup,
    find_members,
    rank,
    select_greedily,
    select_soup,
    soup,
)
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows
from multitask.tasks.task import Split, Task

logger = logging.getLogger("multitask")

SOUPS = ("soup", "greedy_soup")
SELECTED_ON_DEV = ("best_per_task", "greedy", "greedy_soup")

Votes = dict[str, dict[str, int]]  # votes of each task's members, by the members' labels


def ensemble(models: Sequence[Path], data: Path, config: EnsembleConfig, options: RunOptions) -> Artefact:
    """Combine models; the members with a head for a task answer that task.

    The artefact holds evaluation.json and predictions.npz, as `evaluate_on_dev` writes them. evaluation.json also has
    the method, whether it selected on these dev scores (`selected_on_dev`; the scores are then optimistic), every
    member's dev scores and, for each task, the members' weights. Prediction files for dev and test are in
    `predictions`. A soup is kept as the run's model. A missing test file only causes a warning.

    Args:
        models: runs' folders or model folders; models named earlier win ties.
        data: a tasks file, or the folder of the course's files.
        config: how to combine them.
        options: device, precision, and where to write.

    Raises:
        InputError: a folder holds no fine-tuned model, the models cannot form a soup, a file is missing or malformed,
            or outputs are not finite.
    """
    return run_stage(STAGE, models, data, config, options)


def combine(models: Sequence[Weights], data: Path, config: EnsembleConfig, run: OpenRun) -> None:
    """Combine models into a run's folder."""
    runtime = run.runtime
    members = find_members([Path(model.name) for model in models], config.kept)
    if config.method in SOUPS:
        check_soup(members)
    tasks = _common_tasks(members, data)
    examples = _read(tasks)
    seen = reduce(or_, [TrainedOn.of_folder(member.folder, member.label) for member in members])
    seen.keep(run.folder)
    dev = examples["dev"]
    answers = {member.label: _answers(member, dev, runtime) for member in members}
    scores = {member.label: score(member.tasks, answers[member.label], dev) for member in members}
    if config.method in SOUPS:
        votes, combined = _soup(config, members, scores, examples, runtime, run.folder)
    else:
        votes = _vote(config, tasks, answers, dev)
        combined = {"dev": _blended(votes, answers), "test": _on_test(members, votes, examples["test"], runtime)}
    tasks = {name: task.tuned(combined["dev"][name], labels_of(dev[name])) for name, task in tasks.items()}
    for split in examples:
        write_predictions(tasks, combined[split], examples[split], split, run.folder / "predictions")
    TaskEvaluation.of(tasks, combined["dev"], dev, seen).write(run.folder, _described(config, scores, votes))


def _common_tasks(members: Sequence[Member], data: Path) -> dict[str, Task]:
    """The members' tasks with the files of `data`.

    Raises:
        InputError: members differ in a task's declaration, or `data` has none of their tasks.
    """
    declared = load_tasks(data)
    found: dict[str, Task] = {}
    for name in (name for name in declared if any(name in member.tasks for member in members)):
        first, *others = [member for member in members if name in member.tasks]
        for other in others:
            if other.tasks[name].declaration(tuned=False) != first.tasks[name].declaration(tuned=False):
                raise InputError(f"{other.label}: its task {name} has another declaration than that of {first.label}")
        found[name] = located(first.tasks[name], declared[name])
    if not found:
        of_members = ", ".join(dict.fromkeys(name for member in members for name in member.tasks))
        raise InputError(f"{data}: none of the models' tasks ({of_members}); name their tasks file with --tasks-file")
    return found


def _read(tasks: Mapping[str, Task]) -> dict[Split, dict[str, Examples]]:
    """The tasks' dev sets, and the test sets that are declared and exist, without labels."""
    dev, test = {}, {}
    for name, task in tasks.items():
        dev[name] = load_rows(task, "dev")
        if task.test is not None and task.test.exists():
            test[name] = load_rows(task, "test")
        elif task.test is not None:
            logger.warning("%s: no such file; no test predictions for %s", task.test, name)
    return {"dev": dev, "test": test}


def _answers(member: Member, examples: Mapping[str, Examples], runtime: Runtime) -> Estimates:
    """A member's estimates; the model stays in memory only during this call."""
    logger.info("predictions of %s", member.label)
    model = MultitaskModel.load(member.folder).to(runtime.device)
    return estimate(model, _tokenised(model, examples), runtime)


def _tokenised(model: MultitaskModel, examples: Mapping[str, Examples]) -> dict[str, LabelledData]:
    """The rows of the tasks that a model has a head for."""
    return {name: tokenised(model, name, rows) for name, rows in examples.items() if name in model.tasks}


def _vote(
    config: EnsembleConfig,
    tasks: Mapping[str, Task],
    answers: Mapping[str, Estimates],
    dev: Mapping[str, Examples],
) -> Votes:
    """For each task, the number of votes of every member that answers it."""
    votes: Votes = {}
    for name, rows in dev.items():
        voters = [label for label, answer in answers.items() if name in answer]
        given = np.ones(len(voters), np.int64)
        if config.method != "average":
            rounds = config.rounds if config.method == "greedy" else 1
            given = select_greedily(tasks[name], [answers[label][name] for label in voters], labels_of(rows), rounds)
        votes[name] = dict(zip(voters, given.tolist(), strict=True))
    return votes


def _on_test(members: Sequence[Member], votes: Votes, test: Mapping[str, Examples], runtime: Runtime) -> Estimates:
    """Estimates on the test sets; members without votes on a task do not predict it."""
    answers: dict[str, Estimates] = {}
    for member in members:
        if asked := {name: rows for name, rows in test.items() if votes[name].get(member.label)}:
            answers[member.label] = _answers(member, asked, runtime)
    return _blended({name: votes[name] for name in test}, answers)


def _blended(votes: Votes, answers: Mapping[str, Estimates]) -> Estimates:
    """Each task's mean estimates, weighted by the votes."""
    voters = {name: {label: given for label, given in of.items() if given} for name, of in votes.items()}
    return {
        name: blend([answers[label][name] for label in of], np.array(list(of.values()))) for name, of in voters.items()
    }


def _soup(
    config: EnsembleConfig,
    members: Sequence[Member],
    scores: Mapping[str, MultitaskScores],
    examples: Mapping[Split, Mapping[str, Examples]],
    runtime: Runtime,
    folder: Path,
) -> tuple[Votes, dict[Split, Estimates]]:
    """Save the soup as the model of the run in `folder`; return its members as votes, and its estimates."""
    if len({member.seed for member in members}) > 1:
        logger.warning("the heads of these models began from different seeds, so their mean may be worse than each")
    dev = examples["dev"]
    # A soup's probabilities are not those of its members, so it needs thresholds and temperatures of its own.
    calibrate = any(task.declaration().get("temperature") for member in members for task in member.tasks.values())

    def tuned(model: MultitaskModel) -> Estimates:
        return tune(model.to(runtime.device), _tokenised(model, dev), calibrate, runtime)

    def dev_score(model: MultitaskModel) -> float:
        return score(model.tasks, tuned(model), dev).overall

    chosen = list(members)
    if config.method == "greedy_soup":
        chosen = select_soup(sorted(members, key=lambda member: -rank(scores[member.label].overall)), dev_score)
    model = soup([member.folder for member in chosen])
    on_dev = tuned(model)
    model.save(folder / "checkpoints" / "soup")
    write_json(folder / "best.json", {"overall": "soup"})
    votes = {name: {member.label: 1 for member in chosen} for name in dev}
    return votes, {"dev": on_dev, "test": estimate(model, _tokenised(model, examples["test"]), runtime)}


def _described(config: EnsembleConfig, scores: Mapping[str, MultitaskScores], votes: Votes) -> dict[str, Any]:
    """How the members were combined, as JSON types: what evaluation.json has in addition to scores."""
    return {
        "method": config.method,
        "selected_on_dev": config.method in SELECTED_ON_DEV,
        "members": {
            label: {"overall": s.overall, "scores": s.tasks, "metrics": s.metrics} for label, s in scores.items()
        },
        "weights": {name: _shares(given) for name, given in votes.items()},
    }


def _shares(votes: Mapping[str, int]) -> dict[str, float]:
    """Votes as weights that add up to 1; members without votes are left out."""
    return {label: given / sum(votes.values()) for label, given in votes.items() if given}
