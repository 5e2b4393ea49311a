"""Combine several fine-tuned models: by votes on each task, or by the mean of their weights.

Votes and weights are chosen on dev sets only; this code never reads test labels.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from minbert.errors import InputError
from minbert.files import read_json, write_json
from multitask.base import logger
from multitask.base.device import Runtime
from multitask.base.runs import Run, Weights, is_run, locate_model, run_of
from multitask.data.contamination import TrainedOn
from multitask.data.examples import Examples, LabelledData
from multitask.data.messages import listed
from multitask.evaluation.task_scores import MultitaskScores, TaskEvaluation, score_tasks
from multitask.evaluation.text_tables import ensemble_table
from multitask.models.estimates import Estimates, choose_thresholds, estimate, with_files_of, write_predictions
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.stages.reads import declared, rows_of
from multitask.stages.registry import START, stages
from multitask.stages.run_stage import Identity, OpenRun, identity_of, run_stage
from multitask.stages.settings_without_training import ENSEMBLE, SOUPS, EnsembleConfig
from multitask.tasks.check import warn_of_gaps
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows, load_test_rows
from multitask.tasks.task import Split, Task

SELECTED_ON_DEV = ("best_per_task", "greedy", "greedy_soup")

Votes = dict[str, dict[str, int]]  # votes of each task's members, by the members' labels
MemberAnswers = Mapping[str, Mapping[Split, Estimates]]  # by the members' labels
MemberRows = Mapping[str, Examples]  # by their tasks


@dataclass(frozen=True)
class Member:
    """A fine-tuned model."""

    folder: Path
    tasks: dict[str, Task]  # that it has a head for
    shape: dict[str, Any]  # what models must share before their weights can be averaged, as JSON types
    start: Identity | None  # what its run started from; None for a model outside a run
    seed: int | None  # its run's

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a model folder. Raises InputError if it is damaged or not a model folder."""
        model = MultitaskModel.load(folder, keep_layers=True)
        shape = {
            "tasks": {name: task.declaration(tuned=False) for name, task in model.tasks.items()},
            "pooling": model.encoder.pooling,
            "heads": asdict(replace(model.heads_config, dropout=0.0)),  # dropout affects training only
            "max_length": model.encoder.max_length,
            "encoder": model.encoder.model.config.values(),
            "tokenizer": model.encoder.tokenizer.fingerprint(),
        }
        run, start, seed = run_of(folder), None, None
        if is_run(run):
            inputs = read_json(run / "inputs.json", dict)
            stage = stages().get(inputs.get("stage", ""))
            start = inputs["parents"][0] if stage and START in stage.inputs else None
            config = read_json(run / "config.json", dict)
            seed = {**config.get("finetune", {}), **config}.get("seed")  # that of fuse is within its finetune
        return cls(folder, model.tasks, shape, start, seed)

    @property
    def label(self) -> str:
        """Its name in tables."""
        return str(self.folder)


def find_members(models: Sequence[Path], every: bool = False) -> list[Member]:
    """The members that a user names, in that order: of a run its leading model, or every model that it keeps.

    Raises InputError if no model is given, or a folder holds no fine-tuned model.
    """
    folders: dict[Path, Path] = {}  # a model that is named twice, by whatever path, is one member
    for model in models:
        kept = Run(model).kept_models().values() if every else ()  # none of a model folder
        for folder in (locate_model(model), *kept):
            folders.setdefault(folder.resolve(), folder)
    if not folders:
        raise InputError("an ensemble of no models; name one or more runs or model folders")
    return [Member.read(folder) for folder in folders.values()]


ensemble = partial(run_stage, ENSEMBLE)
"""Combine models; the members with a head for a task answer that task. Models named earlier win ties.

The artefact holds evaluation.json and predictions.npz, as `evaluate_on_dev` writes them. evaluation.json also has the
method, whether it selects on these dev scores (`selected_on_dev`; if several members answer a task, the scores are then
optimistic), every member's dev scores and, for each task, the members' weights. Prediction files for dev and test are
in `predictions`. A soup is kept as the run's model. A missing test file only causes a warning.
"""


def reads(_config: EnsembleConfig, data: Path) -> dict[str, Any]:
    """The dev and test sets of all tasks that are declared."""
    tasks = load_tasks(data).values()
    return {"tasks": declared(tasks), "dev": rows_of(tasks, "dev"), "test": rows_of(tasks, "test")}


def compute(models: Sequence[Weights], data: Path, config: EnsembleConfig, run: OpenRun) -> None:
    """Combine models into a run's folder."""
    runtime = run.runtime
    members = find_members([Path(model.name) for model in models], every=config.kept == "all")
    if config.method in SOUPS:
        check_soup(members)
    tasks = _common_tasks(members, data)
    if config.method == "greedy_soup" and not any(task.selects for task in tasks.values()):
        raise InputError(
            f"greedy_soup compares metrics where higher is better, and no task has one ({', '.join(tasks)}); take the "
            "method soup, greedy or best_per_task"
        )
    examples = _read(tasks)
    seen = reduce(or_, [TrainedOn.of_folder(member.folder, member.label) for member in members])
    seen.keep(run.folder)
    dev = examples["dev"]
    asked: Sequence[Split] = ("dev",) if config.method in SOUPS else ("dev", "test")
    answers = {
        member.label: _answers(member, {split: examples[split] for split in asked}, runtime) for member in members
    }
    scores = {member.label: score_tasks(member.tasks, answers[member.label]["dev"], dev) for member in members}
    if config.method in SOUPS:
        votes, combined = _soup(config, members, scores, examples, runtime, run.folder)
    else:
        votes = {name: _vote(config, task, answers, dev[name].gold) for name, task in tasks.items()}
        combined = {split: _blended(votes, answers, split, rows) for split, rows in examples.items()}
    tasks = {name: task.tuned(combined["dev"][name], dev[name].gold) for name, task in tasks.items()}
    for split in examples:
        write_predictions(tasks, combined[split], examples[split], split, run.folder / "predictions")
    TaskEvaluation.of(tasks, combined["dev"], dev, seen).write(run.folder, _described(config, scores, votes))


def _common_tasks(members: Sequence[Member], data: Path) -> dict[str, Task]:
    """The members' tasks with the files of `data`.

    Raises InputError if members differ in a task's declaration, or `data` has none of their tasks.
    """
    declared = load_tasks(data)
    found: dict[str, Task] = {}
    for name in (name for name in declared if any(name in member.tasks for member in members)):
        first, *others = [member for member in members if name in member.tasks]
        for other in others:
            if other.tasks[name].declaration(tuned=False) != first.tasks[name].declaration(tuned=False):
                raise InputError(f"{other.label}: its task {name} is declared differently from that of {first.label}")
        found[name] = with_files_of(first.tasks[name], declared[name])
    if not found:
        of_members = ", ".join(dict.fromkeys(name for member in members for name in member.tasks))
        raise InputError(f"{data}: none of the models' tasks ({of_members}); name their tasks file with --tasks-file")
    for member in members:
        if found.keys().isdisjoint(member.tasks):
            none_of = "%s: has none of the tasks scored here (%s); it answers nothing"
            logger.warning(none_of, member.label, listed(found))
    return found


def _read(tasks: Mapping[str, Task]) -> dict[Split, MemberRows]:
    """The tasks' dev sets, and the test sets that are declared and exist, without labels."""
    dev, test = {}, {}
    for name, task in tasks.items():
        dev[name] = load_rows(task, "dev")
        warn_of_gaps(task, dev[name])
        if (source := task.files.test) is not None and not source.exists():
            logger.warning("%s: no such file; no test predictions for %s", source, name)
        elif (rows := load_test_rows(task)) is not None:
            test[name] = rows
    return {"dev": dev, "test": test}


def _answers(member: Member, examples: Mapping[Split, MemberRows], runtime: Runtime) -> dict[Split, Estimates]:
    """A member's estimates; the model stays in memory only during this call."""
    logger.info("predictions of %s", member.label)
    model = MultitaskModel.load(member.folder, keep_layers=True).on(runtime)
    return {split: estimate(model, _tokenised(model, rows)) for split, rows in examples.items()}


def _tokenised(model: MultitaskModel, examples: MemberRows) -> dict[str, LabelledData]:
    """The rows of the tasks that a model has a head for."""
    return {name: model.tokenised(name, rows) for name, rows in examples.items() if name in model.tasks}


def _vote(config: EnsembleConfig, task: Task, answers: MemberAnswers, labels: NDArray[np.float32]) -> dict[str, int]:
    """The number of votes of every member that answers a task, without those that have none."""
    on_dev = {label: answer["dev"][task.name] for label, answer in answers.items() if task.name in answer["dev"]}
    given = np.ones(len(on_dev), np.int64)
    if config.method != "average":
        rounds = config.rounds if config.method == "greedy" else 1
        given = select_greedily(task, list(on_dev.values()), labels, rounds)
    return {label: votes for label, votes in zip(on_dev, given.tolist(), strict=True) if votes}


def _blended(votes: Votes, answers: MemberAnswers, split: Split, tasks: Iterable[str]) -> Estimates:
    """Each task's mean estimates on a split, weighted by the votes."""
    return {
        name: blend([answers[label][split][name] for label in votes[name]], np.array([*votes[name].values()]))
        for name in tasks
    }


def _soup(
    config: EnsembleConfig,
    members: Sequence[Member],
    scores: Mapping[str, MultitaskScores],
    examples: Mapping[Split, MemberRows],
    runtime: Runtime,
    folder: Path,
) -> tuple[Votes, dict[Split, Estimates]]:
    """Save the soup as the model of the run in `folder`; return its members as votes, and its estimates."""
    dev = examples["dev"]
    # A soup predicts other probabilities than its members, so it needs its own thresholds and temperatures.
    calibrate = any(task.declaration().get("temperature") for member in members for task in member.tasks.values())

    def tuned(model: MultitaskModel) -> Estimates:
        return choose_thresholds(model.on(runtime), _tokenised(model, dev), calibrate)

    kept = start_weights(members[0]) if config.keep_start else None
    mixed = partial(soup, start=kept, share=config.keep_start)

    def dev_score(folders: Sequence[Path]) -> float:
        logger.info("scoring a soup of %d models", len(folders))
        model = mixed(folders)
        return score_tasks(model.tasks, tuned(model), dev).overall

    chosen = list(members)
    if config.method == "greedy_soup":
        chosen = select_soup(sorted(members, key=lambda member: -sortable(scores[member.label].overall)), dev_score)
    if len({member.seed for member in chosen}) > 1:
        logger.warning("the heads of these models began from different seeds, so their mean may be worse than each")
    model = mixed([member.folder for member in chosen])
    on_dev = tuned(model)
    others = [task for name, task in model.tasks.items() if name not in dev]
    if old := [task.name for task in others if task.declaration() != task.declaration(tuned=False)]:
        without = "without a dev set, thresholds and temperatures are those of %s alone: %s"
        logger.warning(without, chosen[0].label, listed(old))
    model.save(folder / "checkpoints" / "soup")
    write_json(folder / "best.json", {"overall": "soup"})
    votes = {name: {member.label: 1 for member in chosen} for name in dev}
    return votes, {"dev": on_dev, "test": estimate(model, _tokenised(model, examples["test"]))}


def _described(config: EnsembleConfig, scores: Mapping[str, MultitaskScores], votes: Votes) -> dict[str, Any]:
    """How the members were combined, as JSON types: what evaluation.json has in addition to scores."""
    return {
        "method": config.method,
        "selected_on_dev": config.method in SELECTED_ON_DEV,
        "members": {
            label: {"overall": s.overall, "scores": s.tasks, "metrics": s.metrics} for label, s in scores.items()
        },
        "weights": {
            name: {label: votes / sum(given.values()) for label, votes in given.items()}
            for name, given in votes.items()
        },
    }


def summary(run: Run) -> str:
    """What the command prints of a finished run: dev scores, weights, and the prediction files."""
    files = sorted((run.folder / "predictions").iterdir())
    return "\n".join([ensemble_table(run.evaluation()), *map(str, files)])


# Votes.


def blend(estimates: Sequence[NDArray[np.float64]], votes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean of the members' estimates, each [rows, ...], weighted by the members' votes [members]."""
    return np.average(np.stack(estimates), axis=0, weights=votes)


def select_greedily(
    task: Task, estimates: Sequence[NDArray[np.float64]], labels: NDArray[np.float32], rounds: int
) -> NDArray[np.int64]:
    """Votes [members] by forward selection with replacement: each round adds the member that helps the score most.

    The first round takes the best single member (the paper's sorted initialisation with one model), so one round gives
    the best member alone. The member named first wins ties. The result is the selection after the round with the best
    score, or the earliest such round. It therefore never scores below the best member on these labels.

    Source: Caruana et al. 2004, "Ensemble selection from libraries of models", sections 2 to 2.2.

    `estimates` are those of each member on the dev set, [rows, ...], and `labels` the dev set's, [rows].
    """
    votes = best = np.zeros(len(estimates), np.int64)
    best_score = -np.inf
    for _ in range(rounds):
        candidates = [votes + another for another in np.eye(len(estimates), dtype=np.int64)]
        blends = [blend(estimates, one) for one in candidates]
        # With thresholds that are chosen for these estimates, as the ensemble will have them.
        scores = [sortable(task.tuned(values, labels).score(values, labels), task.selects) for values in blends]
        votes = candidates[int(np.argmax(scores))]
        if max(scores) > best_score or not best.any():
            best, best_score = votes, max(scores)
    return best


def sortable(score: float, higher_is_better: bool = True) -> float:
    """A score that orders models: an undefined score counts as the worst."""
    return -np.inf if np.isnan(score) else score if higher_is_better else -score


# Soups.


def check_soup(members: Sequence[Member]) -> None:
    """Make sure that the members' weights can be averaged.

    Raises InputError if the members differ in shape or start weights, or the start weights of one are unknown.
    """
    first, *others = members
    for member in members:
        if member.start is None:
            raise InputError(
                f"{member.label}: its start weights are unknown, but a soup needs models with the same start; "
                "pass a run's folder instead"
            )
    for member in others:
        different = [name for name in member.shape if member.shape[name] != first.shape[name]]
        if different or member.start != first.start:
            what = ", ".join(different) or "start weights"
            raise InputError(f"{member.label}: differs from {first.label} in {what}; leave one out of the soup")


def soup(folders: Sequence[Path], start: Path | None = None, share: float = 0.0) -> MultitaskModel:
    """The model whose weights are the mean of the models' weights, summed in fp64; see `check_soup`.

    Source: Wortsman et al. 2022, "Model soups", arXiv 2203.05482, section 2 (uniform soup).

    With start weights, its encoder is share · start + (1 - share) · mean: Xiao et al. 2023, "LM-Cocktail", arXiv
    2311.13534, section 3.2, with the base model and one tuned model.
    """
    total: dict[str, Tensor] = {}
    for folder in folders:  # one in memory at a time
        state = MultitaskModel.load(folder, keep_layers=True).state_dict()
        total = {name: total[name] + tensor if total else tensor.double() for name, tensor in state.items()}
    mean = {name: tensor / len(folders) for name, tensor in total.items()}
    before = SentenceEncoder.read(start, "mean").model.state_dict() if start else {}
    for name, tensor in before.items():
        after = mean[f"encoder.model.{name}"]
        if after.shape != tensor.shape:
            raise InputError(f"{start}: the encoder has another shape than the soup's; leave out --keep-start")
        mean[f"encoder.model.{name}"] = share * tensor.double() + (1 - share) * after
    model = MultitaskModel.load(folders[0], keep_layers=True)
    model.load_state_dict(mean)
    return model


def start_weights(member: Member) -> Path:
    """The checkpoint that the member's run started from. Raises InputError if it has gone or changed."""
    inputs = read_json(run_of(member.folder) / "inputs.json", dict)
    weights = Weights.parse(inputs["labels"]["start"])
    if identity_of(weights) != member.start:
        raise InputError(
            f"{weights}: changed since {member.label} was trained from it; restore it, or train {member.label} again"
        )
    return locate_model(weights.name, weights.revision)


def select_soup(ranked: Sequence[Member], score: Callable[[Sequence[Path]], float]) -> list[Member]:
    """The members of the greedy soup: add one member after another, and keep it unless it lowers the soup's score.

    Source: Wortsman et al. 2022, "Model soups", arXiv 2203.05482, Recipe 1 (greedy soup).

    The members are ranked, best dev score first; `score` is of the dev sets, given the folders of a soup's members.
    """
    chosen, best = [ranked[0]], sortable(score([ranked[0].folder]))
    for member in ranked[1:]:
        value = sortable(score([kept.folder for kept in (*chosen, member)]))
        if value >= best:
            chosen, best = [*chosen, member], value
    return chosen
