"""Ensembles of fine-tuned models: their members, the members' votes, and averages of the members' weights.

Votes and weights are chosen on dev sets only; this code never reads test labels.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from minbert.download_checkpoint import weights_file
from minbert.errors import InputError
from minbert.files import read_json, sha256_of_file
from multitask.models.model_folder import HEADS
from multitask.models.multitask_model import MultitaskModel
from multitask.runs.artefact import Artefact, locate_model
from multitask.tasks.task import Task


@dataclass(frozen=True)
class Member:
    """A fine-tuned model.

    Args:
        folder: the model's folder.
        tasks: the tasks that it has a head for.
        shape: properties that models must share before their weights can be averaged, as JSON types.
        start: what its run started from, its key or hashes of its files; None for a model outside a run.
        seed: its run's seed; None for a model outside a run.
        identity: everything that determines the bits of its outputs, as JSON types.
    """

    folder: Path
    tasks: dict[str, Task]
    shape: dict[str, Any]
    start: str | None
    seed: int | None
    identity: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a model folder. Raises InputError if it is damaged or not a model folder."""
        model = MultitaskModel.load(folder)
        shape = {
            "tasks": {name: task.declaration(tuned=False) for name, task in model.tasks.items()},
            "pooling": model.pooling,
            "heads": asdict(replace(model.heads_config, dropout=0.0)),  # dropout affects training only
            "max_length": model.max_length,
            "encoder": model.encoder.config.values(),
            "tokenizer": model.tokenizer.fingerprint(),
        }
        weights = [sha256_of_file(path) for path in (weights_file(folder), folder / HEADS)]
        run = folder.resolve().parent.parent
        start, seed = None, None
        if folder.resolve().parent.name == "checkpoints" and (run / "inputs.json").is_file():
            parents = read_json(run / "inputs.json").get("parents", [])
            start = json.dumps(parents) if len(parents) == 1 else None
            seed = read_json(run / "config.json").get("seed")
        tasks = {name: task.declaration() for name, task in model.tasks.items()}
        return cls(folder, model.tasks, shape, start, seed, {**shape, "tasks": tasks, "weights": weights})

    @property
    def label(self) -> str:
        """Its name in tables."""
        return str(self.folder)


def find_members(models: Sequence[Path], kept: Literal["leading", "all"]) -> list[Member]:
    """The members that a user names, in that order: of a run its leading model, or all models that it keeps.

    Equal models count once.

    Raises:
        InputError: no model is given, or a folder holds no fine-tuned model.
    """
    members: dict[str, Member] = {}
    for folder in (folder for model in models for folder in _folders(model, kept)):
        member = Member.read(folder)
        members.setdefault(json.dumps(member.identity, sort_keys=True), member)
    if not members:
        raise InputError("an ensemble of no models; name one or more runs or model folders")
    return list(members.values())


def _folders(model: Path, kept: str) -> Iterable[Path]:
    folders = [locate_model(model)]
    if kept == "all":
        folders += Artefact(model).kept_models().values()  # empty for a model folder
    return dict.fromkeys(folders)


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

    Args:
        task: defines the score.
        estimates: each member's estimates on the dev set, [rows, ...].
        labels: the dev set's labels, [rows].
        rounds: number of members to add.
    """
    votes = best = np.zeros(len(estimates), np.int64)
    best_score = -np.inf
    for _ in range(rounds):
        candidates = [votes + another for another in np.eye(len(estimates), dtype=np.int64)]
        scores = [rank(_tuned_score(task, blend(estimates, one), labels), task.selects) for one in candidates]
        votes = candidates[int(np.argmax(scores))]
        if max(scores) > best_score or not best.any():
            best, best_score = votes, max(scores)
    return best


def _tuned_score(task: Task, estimates: NDArray[np.float64], labels: NDArray[np.float32]) -> float:
    """The score with thresholds that are chosen for these estimates, as the ensemble will have them."""
    return task.tuned(estimates, labels).score(estimates, labels)


def rank(score: float, higher_is_better: bool = True) -> float:
    """A score by which models can be ordered: an undefined one counts as the worst."""
    return -np.inf if np.isnan(score) else score if higher_is_better else -score


def check_soup(members: Sequence[Member]) -> None:
    """Make sure that the members' weights can be averaged.

    Raises:
        InputError: the members differ in shape or start weights, or the start weights of one are unknown.
    """
    first, *others = members
    for member in members:
        if member.start is None:
            raise InputError(
                f"{member.label}: its start weights are unknown, but a soup is of models from the same start; "
                "pass a run's folder instead"
            )
    for member in others:
        different = [name for name in member.shape if member.shape[name] != first.shape[name]]
        if different or member.start != first.start:
            what = ", ".join(different) or "start weights"
            raise InputError(f"{member.label}: no soup with {first.label}, which differs in {what}; leave one out")


def soup(folders: Sequence[Path]) -> MultitaskModel:
    """The model whose weights are the mean of the models' weights, summed in fp64; see `check_soup`.

    Source: Wortsman et al. 2022, "Model soups", arXiv 2203.05482, section 2 (uniform soup).
    """
    total: dict[str, Tensor] = {}
    for folder in folders:  # one in memory at a time
        state = MultitaskModel.load(folder).state_dict()
        total = {name: total[name] + tensor if total else tensor.double() for name, tensor in state.items()}
    model = MultitaskModel.load(folders[0])
    model.load_state_dict({name: tensor / len(folders) for name, tensor in total.items()})
    return model


def select_soup(ranked: Sequence[Member], score: Callable[[MultitaskModel], float]) -> list[Member]:
    """The members of the greedy soup: add one member after another, and keep it unless it lowers the soup's score.

    Source: Wortsman et al. 2022, "Model soups", arXiv 2203.05482, Recipe 1 (greedy soup).

    The members are ranked, best dev score first; `score` is of the dev sets.
    """
    chosen, best = [ranked[0]], rank(score(soup([ranked[0].folder])))
    for member in ranked[1:]:
        value = rank(score(soup([kept.folder for kept in (*chosen, member)])))
        if value >= best:
            chosen, best = [*chosen, member], value
    return chosen
