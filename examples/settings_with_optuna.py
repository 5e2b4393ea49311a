"""Settings of `finetune` found with optuna, scored on held-out training rows; the dev set is read once, at the end.

`multitask tune` does this from a TOML file, resumes, and ends hopeless trials early. This is the idea in one page.
Run from the checkout, with the extra `tune`: python examples/settings_with_optuna.py
"""

from dataclasses import replace
from pathlib import Path

import optuna

from multitask import FinetuneConfig, finetune
from multitask.base.options import RunOptions

TASKS = Path("data/own/tasks.toml")
START = "all-minilm-l6-v2"


def main(start: str = START, runs: Path = Path("runs"), trials: int = 4, rows: int = 64) -> float:
    """Search, train the best settings on all rows, and return their overall score on the dev sets."""
    base = FinetuneConfig(epochs=1, epoch_size=rows)

    def settings(trial: "optuna.trial.BaseTrial") -> FinetuneConfig:
        rate = trial.suggest_float("learning_rate", 1e-5, 3e-4, log=True)
        scheduler = trial.suggest_categorical("scheduler", ["average", "batch_round_robin", "pcgrad"])
        return replace(base, scheduler=scheduler, optimizer=replace(base.optimizer, learning_rate=rate))

    def held_out_score(trial: optuna.Trial) -> float:
        run = finetune(start, TASKS, replace(settings(trial), held_out=0.2), RunOptions(runs=runs, name="trial"))
        return max(line["scores"]["overall"] for line in run.history())

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(held_out_score, n_trials=trials)
    best = finetune(start, TASKS, settings(study.best_trial), RunOptions(runs=runs, name="best"))
    score = max(line["scores"]["overall"] for line in best.history())
    print(f"{study.best_params}: {score:.4f} on the dev sets")
    return score


if __name__ == "__main__":
    main()
