"""What holds for every stage that trains: equal bits for equal seeds, also after a cut; rates; losses that fall."""

import logging
import os
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from minbert.files import read_json
from multitask.models.settings import HeadsConfig
from multitask.stages.finetune import finetune
from multitask.stages.fuse import fuse
from multitask.stages.mlm import mlm
from multitask.stages.pretrain import pretrain
from multitask.stages.settings import SUPERVISED, FinetuneConfig, FuseConfig, MlmConfig, PretrainConfig
from multitask.training.optimizer import Optimizer, build_adamw
from multitask.training.settings import OptimizerConfig, RegularisationConfig
from tests.multitask.stages.conftest import history, weights

FAST = OptimizerConfig(learning_rate=1e-3)
AVERAGED = OptimizerConfig(learning_rate=1e-3, ema_decay=0.7, layer_decay=0.5)
BOTH = RegularisationConfig(smart_weight=1.0, r_drop_weight=1.0)
FINETUNE = FinetuneConfig(epochs=2, batch_size=12, encoder_dropout=None, optimizer=FAST)
PRETRAIN = PretrainConfig(batch_size=8, epochs=2, optimizer=FAST)
FUSE = FuseConfig(replace(SUPERVISED, epochs=2, batch_size=6, train_limit=16, optimizer=FAST))
CASES: dict[str, tuple[Any, Any]] = {
    "finetune": (finetune, replace(FINETUNE, optimizer=AVERAGED, regularisation=BOTH, batch_size=6, train_limit=16)),
    "pretrain": (pretrain, replace(PRETRAIN, evaluate_every=3, chunk=3, mlm_weight=0.1, probe_every=3)),
    "mlm": (mlm, MlmConfig(batch_size=8, epochs=2, dev_share=0.2, evaluate_every=3, optimizer=FAST)),
    "fuse": (fuse, FUSE),
}


def with_seed(config: Any, seed: int) -> Any:
    return (
        replace(config, finetune=replace(config.finetune, seed=seed))
        if isinstance(config, FuseConfig)
        else replace(config, seed=seed)
    )


@pytest.fixture
def run(run_stage, one_layer):
    return partial(run_stage, start=one_layer)


class Cut(Exception):  # noqa: N818
    """Stands for a kill."""


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_cut_twice_ends_as_if_it_had_not_been_and_another_seed_does_not(case, run, monkeypatch):
    stage, config = CASES[case]
    whole, step = run(stage, config, folder="whole"), Optimizer.step
    for at in (1, 4):

        def cut(self: Optimizer, number: int, at: int = at) -> None:
            if number == at:
                raise Cut
            step(self, number)

        with monkeypatch.context() as patch:
            patch.setattr(Optimizer, "step", cut)
            with pytest.raises(Cut):
                run(stage, config, folder="cut", save_every=0.0)
        torch.manual_seed(99)  # the generator comes from the saved state
    resumed = run(stage, config, folder="cut")
    assert resumed.folder.name == whole.folder.name
    assert weights(resumed) == weights(whole)
    assert read_json(resumed.folder / "best.json") == read_json(whole.folder / "best.json")
    np.testing.assert_equal(history(resumed), history(whole))
    other = run(stage, with_seed(config, 1))
    assert other.folder.name != whole.folder.name
    assert not {*weights(whole).values()} & {*weights(other).values()}


def test_a_run_is_found_with_any_threads_and_goes_on_with_its_own(run, monkeypatch, caplog):
    """Ctrl-C, and the same command again with another number of threads."""
    used, step, before = [], Optimizer.step, torch.get_num_threads()
    caplog.set_level(logging.INFO)
    whole = run(finetune, FINETUNE, folder="whole", threads=2)

    def cut(self: Optimizer, number: int) -> None:
        used.append(torch.get_num_threads())
        if len(used) == 2:
            raise Cut
        step(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(Optimizer, "step", cut)
        with pytest.raises(Cut):
            run(finetune, FINETUNE, folder="cut", threads=2, save_every=0.0)
        resumed = run(finetune, FINETUNE, folder="cut", threads=1)
    assert set(used) == {2}
    assert resumed.folder.name == whole.folder.name
    assert weights(resumed) == weights(whole)
    assert read_json(resumed.folder / "inputs.json")["threads"] == 2
    said = "threads: 2, as the run began, so that it ends with the same bits; another number needs --threads and a new "
    assert [line for line in caplog.messages if line.startswith("threads: ")] == [
        f"{said}beginning: delete {resumed.folder}, which loses its steps"
    ]
    assert run(finetune, FINETUNE, folder="whole", threads=3).folder == whole.folder  # and computes nothing
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("load", "given", "threads", "said"),
    [
        (9.0, {}, 1, "this machine is busy (load 9.0, 2 cores), where one thread is faster, so the run has one; "),
        (9.0, {"threads": 2}, 2, "this machine is busy (load 9.0, 2 cores), where one thread is faster than 2; "),
        (2.4, {}, 2, None),  # of a training that has just ended
    ],
    ids=["busy", "asked for", "not busy"],
)
def test_a_run_begins_with_one_thread_on_a_busy_machine(load, given, threads, said, run, monkeypatch, caplog):
    before = torch.get_num_threads()
    caplog.set_level(logging.INFO)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    torch.set_num_threads(2)
    found = run(finetune, replace(FINETUNE, epochs=1, train_limit=12), folder="busy", **given)
    assert torch.get_num_threads() == 2  # for what the process does next
    torch.set_num_threads(before)
    assert read_json(found.folder / "inputs.json")["threads"] == threads
    lines = [line for line in caplog.messages if "busy" in line]
    assert len(lines) == (said is not None)
    assert all(line.startswith(said) for line in lines)


@pytest.mark.parametrize(("rate", "said"), [(0.0, False), (1.0, True)])
@pytest.mark.parametrize("case", ["finetune", "pretrain"])
def test_a_training_that_ends_below_its_start_says_so(case, rate, said, run, caplog):
    """With a rate of 0 the scores stay those of the start weights, and with a rate of 1 they are those of chance."""
    stage, config = CASES[case][0], {"finetune": FINETUNE, "pretrain": PRETRAIN}[case]
    tasks = {"tasks": ("similarity",)} if case == "finetune" else {}
    run(stage, replace(config, epochs=1, optimizer=OptimizerConfig(rate, head_learning_rate=rate), **tasks))
    lines = [record.getMessage() for record in caplog.records if "below its start" in record.getMessage()]
    assert len(lines) == said
    assert all(line.startswith("similarity ends below its start: ") for line in lines)
    assert ("learning_rate is 1; usual are 0.001 and less, and training" in caplog.text) == said


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_the_encoder_has_the_heads_learning_rate(case, problem):
    found = problem(*CASES[case])
    optimizer = build_adamw(found.module, OptimizerConfig(learning_rate=1e-5, head_learning_rate=1e-3))
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    encoder = {id(p) for p in found.module["encoder"].parameters()}
    assert {rates[name] for name in encoder} == {1e-5}
    assert {rate for name, rate in rates.items() if name not in encoder} == {1e-3}
    assert len(rates) == len(list(found.module.parameters()))


@pytest.mark.parametrize(
    ("stage", "config", "losses"),
    [
        (pretrain, replace(PRETRAIN, sources=("pairs",), select="last", epochs=20, projection="none"), {"pairs": 0.7}),
        (mlm, MlmConfig(batch_size=8, epochs=25, dev_share=0.1), {"mlm": 0.8}),
        (
            fuse,
            replace(
                FUSE,
                finetune=replace(FUSE.finetune, epochs=15, pooling="mean", heads=HeadsConfig("none", dropout=0.0)),
                unlabelled=(),
            ),
            {"sentiment": 0.8, "sentiment views": 0.8},
        ),
    ],
    ids=["pretrain", "mlm", "fuse"],
)
def test_losses_fall(stage, config, losses, run):
    optimizer = OptimizerConfig(learning_rate=1e-2 if stage is mlm else 5e-3)
    if stage is fuse:
        config = replace(config, finetune=replace(config.finetune, optimizer=optimizer))
    else:
        config = replace(config, optimizer=optimizer)
    first, *_, last = (line["training"] for line in run(stage, config).history())
    for name, share in losses.items():
        assert last[name] < share * first[name]
