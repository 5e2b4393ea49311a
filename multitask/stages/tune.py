"""A search for settings: what it chooses from, numbers of a range or listed values, and its trials."""

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import optuna
import pandas
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from minbert.errors import InputError
from minbert.settings import settings
from multitask.base import logger
from multitask.base.errors import Stopped, TrainingError
from multitask.base.keys import RunKey
from multitask.base.locks import exclusive
from multitask.base.options import RunOptions
from multitask.base.random_streams import generator
from multitask.base.runs import Run, Weights, lock_file
from multitask.stages.run_stage import key_of_models, prepare_process, run_stage
from multitask.stages.settings import FINETUNE, FinetuneConfig
from multitask.training.checkpoints_and_resume import checkpoint_name

STARTUP = 5
"""Trials with random settings before the sampler learns from scores, and complete trials before one is pruned."""
REPEATS = 10
"""The search ends if so many trials in a row repeat earlier settings."""
FEWEST_TRIALS = 4
"""Complete trials that importances need."""
ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


@settings
class Range:
    """Numbers from `low` to `high`: whole ones if both are. With `log`, their logarithms are equally likely."""

    low: int | float
    high: int | float
    log: bool = False

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise InputError(f"low is {self.low}; expected below high, which is {self.high}")
        if self.log and self.low <= 0:
            raise InputError(f"low is {self.low}; expected above 0 with log")

    @property
    def values(self) -> tuple[Any, ...]:
        """Both ends."""
        return self.low, self.high

    @property
    def whole(self) -> bool:
        """Whether it has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def stored(self, value: Any) -> Any:
        """A value as Optuna stores it; None if it is not in the range."""
        inside = isinstance(value, int | float) and self.low <= value <= self.high
        return value if inside and not (self.whole and value % 1) else None

    def suggest(self, trial: Any, name: str) -> Any:
        """The value of one of Optuna's trials."""
        suggest = trial.suggest_int if self.whole else trial.suggest_float
        return suggest(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class Choices:
    """Listed values, as JSON types. Optuna, which takes no lists, stores them as texts."""

    values: tuple[Any, ...]

    def stored(self, value: Any) -> str | None:
        """A value as Optuna stores it; None if it is not listed."""
        return next((json.dumps(listed) for listed in self.values if listed == value), None)

    def suggest(self, trial: Any, name: str) -> Any:
        """The value of one of Optuna's trials."""
        return json.loads(trial.suggest_categorical(name, [*map(json.dumps, self.values)]))


Space = Mapping[str, Range | Choices]
Chosen = Mapping[str, Any]
"""A value of each option that is searched, by the options' names."""


def each_value(space: Space) -> list[dict[str, Any]]:
    """Choices that have every value at least once: all options but one have their first value."""
    first = {name: values.values[0] for name, values in space.items()}
    return [first | {name: value} for name, values in space.items() for value in values.values]


def chosen_by(trial: Any) -> dict[str, Any]:
    """What one of Optuna's trials has tried."""
    return {name: json.loads(value) if isinstance(value, str) else value for name, value in trial.params.items()}


@dataclass(frozen=True)
class TuneSearch:
    """What is searched."""

    space: Space
    settings: Callable[[Chosen], tuple[Weights, FinetuneConfig]]  # raises InputError if values exclude one another
    defaults: Chosen  # the first trial has those that the space allows
    data: Path  # a tasks file, or the folder of the data
    held_out: float  # share of the training rows that trials are scored on
    seed: int  # of the sampler
    options: RunOptions

    def trial_of(self, chosen: Chosen) -> tuple[Weights, FinetuneConfig, RunKey]:
        """Start weights, configuration and key of a trial's run."""
        start, config = self.settings(chosen)
        config = replace(config, held_out=self.held_out, keep_task_bests=False)
        runtime = prepare_process(FINETUNE, self.options)
        return start, config, key_of_models(FINETUNE, [start], self.data, config, runtime)

    def _keys(self) -> list[RunKey]:
        """Keys of trials that have every value, except values that exclude one another."""
        chosen = each_value(self.space)
        legal = [values for values in chosen if not self._excluded(values)]
        return [self.trial_of(values)[2] for values in legal or chosen]

    def _excluded(self, chosen: Chosen) -> bool:
        """Whether values of a choice exclude one another."""
        try:
            self.settings(chosen)
        except InputError:
            return True
        return False

    @contextmanager
    def study(self, name: str) -> Iterator[tuple[Path, "optuna.Study"]]:
        """The study and its folder, alone. A new folder is removed again if the first trial is refused.

        The folder's name has a hash of the space, the data and the fixed settings.
        """
        space = {option: asdict(values) for option, values in self.space.items()}
        keys = self._keys()  # with the hashes of all start weights
        inputs = {"runs": sorted(key.digest() for key in keys), "space": space, "sampler": self.seed}
        key = replace(keys[0], stage="tune", inputs=inputs)
        folder = self.options.runs / f"tune-{name}-{key.digest()}"
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with exclusive(lock_file(folder.parent, folder.name), f"{folder}: another process searches; waiting for it"):
            folder.mkdir(exist_ok=True)
            _mend(journal := folder / "journal.log")
            storage = JournalStorage(JournalFileBackend(str(journal)))
            pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP)
            study = optuna.create_study(
                study_name="tune", storage=storage, direction="maximize", pruner=pruner, load_if_exists=True
            )
            if not study.trials:
                stored = {option: self.space[option].stored(value) for option, value in self.defaults.items()}
                study.enqueue_trial({option: value for option, value in stored.items() if value is not None})
            try:
                yield folder, study
            except InputError:
                if not _ended(study):
                    shutil.rmtree(folder)
                raise

    def run(self, study: "optuna.Study", trials: int | None, seconds: float | None) -> None:
        """Try settings until so many trials have ended, or all have taken so long. A stopped trial goes on first."""
        while trials is None or len(_ended(study)) < trials:
            if _repeats(study):
                ended = f"{len(_ended(study))} trials" if trials is None else f"{len(_ended(study))} of {trials} trials"
                logger.info("the last %d trials repeated earlier settings: the search ends after %s", REPEATS, ended)
                break
            left = math.inf if seconds is None else seconds - sum(map(_seconds, study.trials))
            if left <= 0 or not self._try(study, self._next(study), time.monotonic() + left):
                break

    def _next(self, study: "optuna.Study") -> Trial:
        """The trial that was stopped, or a new one, which depends on the seed and the earlier trials alone."""
        seed = int(generator(self.seed, "settings of a trial", len(_ended(study))).integers(2**32))
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=STARTUP, seed=seed)
        stopped = study.get_trials(states=(TrialState.RUNNING,))
        return Trial(study, stopped[0]._trial_id) if stopped else study.ask()

    def _try(self, study: "optuna.Study", trial: Trial, deadline: float) -> bool:
        """Compute a trial; returns False if the time is up before its end."""
        chosen = {name: values.suggest(trial, name) for name, values in self.space.items()}
        logger.info("trial %d: %s", trial.number, ", ".join(f"{name} {value}" for name, value in chosen.items()))
        began, before = time.monotonic(), trial.user_attrs.get("seconds", 0.0)
        score = None
        try:
            score = self._score(trial, chosen, deadline)
        except Stopped:
            if not trial.should_prune():
                return False
        except (InputError, TrainingError) as error:
            if isinstance(error, InputError) and not _ended(study) and not self._excluded(chosen):
                raise  # data or start weights are at fault, not what was chosen
            logger.warning("trial %d: %s", trial.number, error)
            trial.set_user_attr("failed", str(error))  # told as pruned, as the sampler learns nothing from failed ones
        finally:
            trial.set_user_attr("seconds", before + time.monotonic() - began)
        study.tell(trial, score, TrialState.PRUNED if score is None else TrialState.COMPLETE)
        return True

    def _score(self, trial: Trial, chosen: Chosen, deadline: float) -> float:
        """The best held-out score of a trial's run. Raises TrainingError if it is undefined."""
        start, config, key = self.trial_of(chosen)
        trial.set_user_attr("epochs", config.epochs)
        scores = trial.study.trials[trial.number].intermediate_values  # reported before the search was stopped

        def enough(_step: int, line: dict[str, Any]) -> bool:
            epoch = line["epoch"]
            if epoch not in scores:
                scores[epoch] = next(iter(line["scores"].values()), math.nan)
                trial.report(scores[epoch], epoch)
            return epoch < config.epochs and (trial.should_prune() or time.monotonic() > deadline)

        run = Run.find(self.options.runs, key)
        # A trial that was stopped goes on; one that repeats a pruned one is pruned.
        before = run.history() if run and not run.done and (run.folder / "metrics.jsonl").is_file() else []
        if any(enough(line["step"], line) for line in before):
            raise Stopped
        run = run_stage(FINETUNE, start, self.data, config, self.options, enough)
        for line in run.history():
            enough(line["step"], line)
        if not (defined := [score for score in scores.values() if not math.isnan(score)]):
            raise TrainingError("all its held-out scores are undefined")
        return max(defined)

    def train(self, chosen: Chosen, seeds: int) -> dict[int, Run]:
        """Train a choice on all training rows; the runs by seed."""
        start, config = self.settings(chosen)
        configs = [replace(config, seed=config.seed + number) for number in range(seeds)]
        return {config.seed: run_stage(FINETUNE, start, self.data, config, self.options) for config in configs}


def _mend(journal: Path) -> None:
    """Remove what a kill left: Optuna's lock, for which it would wait, and a part of a line, which it would extend.

    Nobody else has the journal open, because the folder's own lock is held.
    """
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    if journal.is_file():
        os.truncate(journal, journal.read_bytes().rfind(b"\n") + 1)


def best_choice(study: "optuna.Study") -> Chosen:
    """The choice of the best complete trial. Raises InputError if there is none."""
    if not study.get_trials(states=(TrialState.COMPLETE,)):
        failed = [trial.user_attrs["failed"] for trial in _ended(study) if "failed" in trial.user_attrs]
        if failed:
            raise InputError(f"no trial has a score; {len(failed)} failed, the last one: {failed[-1]}")
        raise InputError("no trial is complete; the same command with a larger --budget goes on from here")
    return chosen_by(study.best_trial)


def ties(study: "optuna.Study") -> list[str]:
    """A line that names the first trials of other settings that score as high as the best one, if there are any."""
    best, others = study.best_trial, dict[tuple[Any, ...], int]()
    for trial in study.get_trials(states=(TrialState.COMPLETE,)):
        if trial.value == best.value and trial.params != best.params:
            others.setdefault(tuple(sorted(trial.params.items())), trial.number)
    tied = f"{len(others)} other choices of settings have the same score as trial {best.number}, which came first"
    return [f"{tied}: trials {', '.join(map(str, others.values()))}\n"] if others else []


def trials_table(study: "optuna.Study") -> pandas.DataFrame:
    """All trials with their settings; the score of a pruned one is its last."""
    return pandas.DataFrame(
        {
            "trial": trial.number,
            **chosen_by(trial),
            "held-out score": trial.value,
            "state": trial.state.name.lower(),
            "epochs run": len(trial.intermediate_values),
            **trial.user_attrs,
        }
        for trial in study.trials
    )


def importances(study: "optuna.Study") -> pandas.DataFrame:
    """The share of the scores' variance that each option explains (fANOVA, Hutter et al. 2014), if it is known."""
    found: dict[str, float] = {}
    if len(study.get_trials(states=(TrialState.COMPLETE,))) >= FEWEST_TRIALS:
        with suppress(RuntimeError):  # no score differs
            found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
    return pandas.DataFrame({"setting": list(found), "importance": list(found.values())})


def saved(study: "optuna.Study") -> pandas.DataFrame:
    """What trials took, and what pruning saved if the epochs that did not run take as long as those that did."""
    pruned = [t for t in study.get_trials(states=(TrialState.PRUNED,)) if "failed" not in t.user_attrs]
    left = sum(_seconds(t) * (t.user_attrs["epochs"] / len(t.intermediate_values) - 1) for t in pruned)
    minutes = {"minutes": sum(map(_seconds, study.trials)) / 60, "minutes saved by pruning": left / 60}
    return pandas.DataFrame([{"trials": len(study.trials), "pruned": len(pruned), **minutes}])


def dev_scores(runs: Mapping[int, Run]) -> pandas.DataFrame:
    """Dev scores of the winner's leading models by seed, their means and standard deviations."""
    found = {}
    for seed, run in runs.items():
        leading = next(iter(run.kept_models().values())).name
        found[seed] = next(line["scores"] for line in run.history() if leading == checkpoint_name(line["step"]))
    scores = pandas.DataFrame.from_dict(found, orient="index")
    over_seeds = {"mean": scores.mean(skipna=False), "std": scores.std(skipna=False)}
    return pandas.concat([scores, pandas.DataFrame(over_seeds).T]).rename_axis("dev, seed").reset_index()


def _ended(study: "optuna.Study") -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=ENDED)


def _repeats(study: "optuna.Study") -> bool:
    """Whether the last trials have repeated earlier settings only."""
    tried = [trial.params for trial in _ended(study)]
    return len(tried) > REPEATS and all(params in tried[:-REPEATS] for params in tried[-REPEATS:])


def _seconds(trial: FrozenTrial) -> float:
    return float(trial.user_attrs.get("seconds", 0.0))
