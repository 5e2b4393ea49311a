"""Several ranks train as one process does: same gradients, one artefact, joint stop and resume. Slow: processes."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from minbert.errors import InputError
from minbert.files import sha256_of_file, write_text
from multitask.base import distributed
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.cli.main import main
from multitask.data.contamination import RECORD
from multitask.models.settings import HeadsConfig
from multitask.stages import training_run
from multitask.stages.finetune import finetune
from multitask.stages.fuse import fuse
from multitask.stages.mlm import mlm
from multitask.stages.pretrain import Pretraining, pretrain
from multitask.stages.settings import SUPERVISED, FinetuneConfig, FuseConfig
from multitask.stages.settings_of_pretraining import MlmConfig, PretrainConfig
from multitask.tasks import MAIN_TASKS
from multitask.training.masked_words import MaskedSource
from multitask.training.settings import ContrastiveConfig, ObjectiveConfig
from multitask.training.source import Batch
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

DEADLINE = 200  # seconds after which a test counts as hanging


# Ranks: processes with the variables that `torchrun` sets.


@dataclass
class Ranks:
    """Processes that run the same function; `log(rank)` is the output of one."""

    processes: list[Any]
    folder: Path

    def join(self) -> list[int | None]:
        """Exit codes."""
        end = time.monotonic() + DEADLINE
        for process in self.processes:
            process.join(max(end - time.monotonic(), 0))
            if process.is_alive():
                [other.kill() for other in self.processes]
                raise AssertionError(f"ranks hang: {self.log(0)} {self.log(1)}")
        return [process.exitcode for process in self.processes]

    def log(self, rank: int) -> str:
        return (self.folder / f"log-{rank}").read_text()


def run_rank(rank: int, ranks: int, port: int, folder: Path, function: Callable[..., Any], arguments: tuple) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    with (folder / f"log-{rank}").open("w", buffering=1) as file:
        sys.stdout = sys.stderr = file
        try:
            sys.exit(function(*arguments))
        except Exception:
            traceback.print_exc()  # here, because the file is closed when the process would print it
            raise


Launch = Callable[..., Ranks]


@pytest.fixture(scope="module")
def launch(processes, tmp_path_factory) -> Launch:
    """Start ranks."""

    def call(function: Callable[..., Any], *arguments: Any, ranks: int = 2) -> Ranks:
        folder = tmp_path_factory.mktemp("ranks")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        each = [(rank, ranks, port, folder, function, arguments) for rank in range(ranks)]
        started = [processes.Process(target=run_rank, args=one) for one in each]
        [process.start() for process in started]
        return Ranks(started, folder)

    return call


# What the first rank tells.


def tell(folder: Path) -> None:
    """Save what the first rank computes, and what all ranks say."""
    distributed.join_ranks(torch.device("cpu"))
    found: list[Any] = [distributed.from_first(distributed.rank), distributed.all_of(distributed.rank())]
    found.append(distributed.highest((distributed.rank(), -distributed.rank(), 0.5)))
    try:
        distributed.from_first(fail)
    except InputError as error:
        found.append(str(error))
    torch.save(found, folder / f"{distributed.rank()}.pt")


def fail() -> None:
    raise InputError("the first rank's own")


def test_all_ranks_hear_what_the_first_computes_or_its_error(launch, tmp_path):
    ranks = launch(tell, tmp_path, ranks=3)
    assert ranks.join() == [0, 0, 0], ranks.log(0)
    for rank in range(3):
        assert torch.load(tmp_path / f"{rank}.pt") == [0, [0, 1, 2], [2.0, 0.0, 0.5], "the first rank's own"]


# Gradients of all stages.


@pytest.fixture(scope="module")
def still(tiny_encoder, tmp_path_factory) -> Path:
    """The tiny encoder without dropout."""
    folder = shutil.copytree(tiny_encoder, tmp_path_factory.mktemp("still") / "encoder")
    config = json.loads((folder / "config.json").read_text())
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config | none))
    return folder


@pytest.fixture(scope="module")
def data(small_data, sample_data, tmp_path_factory) -> Path:
    """The small data with triplets, and unlabelled text that contains every sentence three times."""
    folder = shutil.copytree(small_data, tmp_path_factory.mktemp("distributed") / "data")
    with (sample_data / "sentences.txt").open(encoding="utf-8") as file:
        (folder / "sentences.txt").write_text("".join(line * 3 for line in islice(file, 8)), encoding="utf-8")
    with (sample_data / "nli_triplets.csv").open(encoding="utf-8", newline="") as file:
        (folder / "nli_triplets.csv").write_text("".join(islice(file, 41)), encoding="utf-8", newline="")
    return folder


FINETUNE = FinetuneConfig(MAIN_TASKS, batch_size=12, task_weights=(1.0, 2.0, 5.0), heads=HeadsConfig(dropout=0.0))
PRETRAIN = PretrainConfig(batch_size=12, select="last")
FUSE = FuseConfig(
    replace(SUPERVISED, batch_size=12, tasks=FINETUNE.tasks, untrained=(), scheduler="pcgrad"),
    ContrastiveConfig(quora_share=1.0),
    steps="one",
)
CASES: dict[str, tuple[Callable[..., Run], Any]] = {
    "average": (finetune, FINETUNE),
    "uncertainty": (finetune, replace(FINETUNE, scheduler="uncertainty")),
    "pcgrad": (finetune, replace(FINETUNE, scheduler="pcgrad")),
    "random": (finetune, replace(FINETUNE, scheduler="random")),
    "duplicates": (pretrain, PRETRAIN),
    "triplets in chunks": (pretrain, replace(PRETRAIN, sources=("nli",), chunk=2)),
    "labelled pairs": (pretrain, replace(PRETRAIN, sources=("quora",))),
    "labelled pairs apart": (pretrain, replace(PRETRAIN, sources=("quora",), objective=ObjectiveConfig("met"))),
    "queue": (pretrain, replace(PRETRAIN, sources=("nli",), momentum=0.9, queue_size=16)),
    "predictor": (pretrain, replace(PRETRAIN, objective=ObjectiveConfig("byol"), momentum=0.9)),
    "uniformity": (pretrain, replace(PRETRAIN, sources=("similarity",), objective=ObjectiveConfig("align_uniform"))),
    "masked beside": (pretrain, replace(PRETRAIN, sources=("nli",), mlm_weight=0.3)),
    "masked beside in chunks": (pretrain, replace(PRETRAIN, sources=("unlabelled",), mlm_weight=0.3, chunk=2)),
    "masked": (mlm, MlmConfig(batch_size=12, dev_share=0.0)),
    "fusion": (fuse, replace(FUSE, finetune=replace(FUSE.finetune, heads=HeadsConfig(dropout=0.0)))),
}
SIZES = (11, 1)  # of batches: ranks have unequal shares, and one has none


def mask_by_word(source: MaskedSource, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Masks that do not depend on which other sentences are read."""
    places = ((ids % 3 == 0) & ~torch.isin(ids, source.special)).nonzero().squeeze(1)
    return ids.index_fill(0, places, source.tokenizer.mask_token_id), places


def look_at_steps(problem: Any, *_: Any, **__: Any) -> list[dict[str, Any]]:
    """In place of `train`: losses and gradients of batches of several sizes."""
    problem.module.train()
    found = []
    predicts = isinstance(problem, Pretraining) and problem.config.objective.build().predicts
    for size in (11, 5) if predicts else SIZES:  # of two rows, a batch norm has little but signs
        update = tuple(Batch(batch.source, batch.rows[:size]) for batch in problem.plan(0)[0])
        losses = problem.backward(update)
        parameters = {name: p for name, p in problem.module.named_parameters() if p.grad is not None}
        distributed.average([p.grad for p in parameters.values()])
        gradients = {name: p.grad.clone() for name, p in parameters.items()}
        found.append({"losses": losses.terms, "watched": losses.watched, "gradients": gradients})
        found[-1] |= {"tokens": losses.tokens, "conflicts": {}}
        found[-1]["conflicts"] = problem.watch(update, 0)
        problem.module.zero_grad(set_to_none=True)
    return found


def steps_of_all_cases(start: Path, data: Path, folder: Path) -> None:
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaskedSource, "mask", mask_by_word)
        for name, (stage, config) in CASES.items():
            seen: list[Any] = []

            def look(*given: Any, seen: list[Any] = seen) -> None:
                seen.append(look_at_steps(*given))
                line = {"step": 1, "epoch": 1, "training": {}, "dev": {}, "scores": {}, "tokens": 0, "seconds": 0.0}
                # Another rank's temporary file could vanish while the first rank hashes the run's files.
                files = {"metrics.jsonl": json.dumps(line) + "\n", "best.json": "{}"}
                distributed.from_first(lambda: [write_text(given[2] / name, text) for name, text in files.items()])

            patch.setattr(training_run, "train", look)
            stage(str(start), data, config, RunOptions(device="cpu", precision="fp32", runs=folder / "runs"))
            (found[name],) = seen
    torch.save(found, folder / f"{distributed.rank()}.pt")


@pytest.fixture(scope="module")
def steps(launch, still, data, tmp_path_factory) -> SimpleNamespace:
    """The results of one process, and of each of two ranks."""
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    ranks = launch(steps_of_all_cases, still, data, two)
    steps_of_all_cases(still, data, one)
    assert ranks.join() == [0, 0], ranks.log(0) + ranks.log(1)
    return SimpleNamespace(one=torch.load(one / "0.pt"), two=[torch.load(two / f"{rank}.pt") for rank in range(2)])


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_find_what_one_process_finds(steps, case):
    if case == "duplicates":
        assert steps.one[case][0]["watched"]["unlabelled duplicates"] > 0.2
    for ranks in steps.two:
        for one, both in zip(steps.one[case], ranks[case], strict=True):
            for part in one:
                # Cosines of short gradients; a batch norm divides by deviations of 1e-2.
                noise = 1e-4 if part == "conflicts" or case == "predictor" else 2e-6
                torch.testing.assert_close(both[part], one[part], rtol=2e-5, atol=noise)
    assert any(gradient.abs().max() > 1e-3 for gradient in steps.one[case][0]["gradients"].values())


@pytest.mark.parametrize("case", CASES)
def test_the_ranks_agree_to_the_bit(steps, case):
    for first, second in zip(steps.two[0][case], steps.two[1][case], strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0)


# Whole runs.


def arguments(start: Path, data: Path, runs: Path, *more: str) -> list[str]:
    return [
        *("finetune", "--epochs", "3", "--batch-size", "9", "--learning-rate", "1e-3", "--save-every", "0"),
        *("--start", str(start), "--data", str(data), "--runs", str(runs), "--scheduler", "pcgrad"),
        *("--device", "cpu", "--precision", "fp32", *more),
    ]


STEPS = 24  # 64 rows of each task an epoch, the last batch of one row


def saved(runs: Path) -> dict[str, Any]:
    """The saved state; step -1 without one."""
    for path in runs.glob("*/state/state.pt"):
        state = torch.load(path, weights_only=True)
        return {**state, "step": json.loads(state["progress"])["step"]}
    return {"step": -1}


def result(runs: Path) -> tuple[dict[str, str], list[str]]:
    """Checksums of the weights, and the lines of metrics.jsonl but for their times, as text: NaN equals NaN there."""
    (folder,) = runs.glob("finetune-*")
    weights = {f"{path.parent.name}/{path.name}": sha256_of_file(path) for path in folder.rglob("*.safetensors")}
    assert weights
    lines = Run(folder).history()
    return weights, [json.dumps({key: value for key, value in line.items() if key != "seconds"}) for line in lines]


@pytest.fixture(scope="module")
def undisturbed(launch, tiny_encoder, data, tmp_path_factory) -> Path:
    """The folder of artefacts of a run on two ranks."""
    runs = tmp_path_factory.mktemp("undisturbed")
    ranks = launch(main, arguments(tiny_encoder, data, runs))
    assert ranks.join() == [0, 0], ranks.log(0) + ranks.log(1)
    (folder,) = runs.glob("finetune-*")
    assert ranks.log(0).splitlines()[-1] == str(folder)
    assert ranks.log(1) == ""  # only the first rank prints
    return runs


def test_stopped_and_killed_ranks_end_as_if_undisturbed(launch, undisturbed, tiny_encoder, data, tmp_path):
    def begin(until: int) -> Ranks:
        ranks = launch(main, arguments(tiny_encoder, data, tmp_path))
        while saved(tmp_path)["step"] < until and all(process.is_alive() for process in ranks.processes):
            time.sleep(0.01)
        return ranks

    stopped = begin(2)
    os.kill(stopped.processes[1].pid, signal.SIGTERM)  # one gets the signal, both stop
    assert stopped.join() == [128 + signal.SIGTERM] * 2, stopped.log(0) + stopped.log(1)
    state = saved(tmp_path)
    assert 2 <= state["step"] < STEPS
    first, second = state["generators"]["cpu"].chunk(2)
    assert not torch.equal(first, second)  # each rank has its own dropout
    killed = begin(state["step"] + 3)
    [os.kill(process.pid, signal.SIGKILL) for process in killed.processes]
    assert killed.join() == [-signal.SIGKILL] * 2
    assert state["step"] < saved(tmp_path)["step"] < STEPS
    last = begin(STEPS)
    assert last.join() == [0, 0], last.log(0) + last.log(1)
    assert result(tmp_path) == result(undisturbed)


def test_torchrun_starts_such_ranks_and_they_find_it_done(undisturbed, tiny_encoder, data):
    before = result(undisturbed)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "--"]
    command = [*launcher, "multitask", *arguments(tiny_encoder, data, undisturbed)]
    settings = {"env": os.environ | {"OMP_NUM_THREADS": "1"}, "cwd": ROOT, "text": True, "capture_output": True}
    done = subprocess.run(command, **settings, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    assert "already computed" in done.stderr
    (folder,) = undisturbed.glob("finetune-*")
    assert [line for line in done.stdout.splitlines() if "finetune" in line] == [str(folder)]
    assert result(undisturbed) == before
    assert json.loads((folder / "inputs.json").read_text())["ranks"] == "2"  # its bits differ from those of one process


def test_a_single_process_reads_the_same_and_knows_of_no_ranks(undisturbed, tiny_encoder, data, tmp_path, capsys):
    assert main(arguments(tiny_encoder, data, tmp_path, "--epochs", "1")) == 0
    capsys.readouterr()
    (alone,), (together,) = tmp_path.glob("finetune-*"), undisturbed.glob("finetune-*")
    assert "ranks" not in json.loads((alone / "inputs.json").read_text())
    tokens = [[line["tokens"] for line in Run(folder).history()] for folder in (alone, together)]
    assert tokens[0] == tokens[1][:1]  # tokens of all ranks are counted
    assert sha256_of_file(alone / RECORD) == sha256_of_file(together / RECORD)  # the sentences of all ranks


def test_what_is_not_finite_stops_all_ranks_with_the_same_words(launch, tiny_encoder, data, tmp_path):
    ranks = launch(main, arguments(tiny_encoder, data, tmp_path, "--learning-rate", "1e30"))
    assert ranks.join() == [1, 1]
    errors = [[line for line in ranks.log(rank).splitlines() if line.startswith("error")] for rank in range(2)]
    assert errors[0] == errors[1]
    assert "(sentiment rows" in errors[0][0] or "gradient norm" in errors[0][0]


def train_on_own_data(start: Path, data: Path, runs: Path) -> int:
    """The second rank's data have one row less."""
    if os.environ["RANK"] == "1":
        data = shutil.copytree(data, runs / "copy")
        text = (data / "sts-train.csv").read_text().splitlines(keepends=True)
        (data / "sts-train.csv").write_text("".join(text[:-1]))
    return main(arguments(start, data, runs))


def test_ranks_with_other_data_are_refused(launch, tiny_encoder, data, tmp_path):
    ranks = launch(train_on_own_data, tiny_encoder, data, tmp_path)
    assert ranks.join() == [2, 2]
    for rank in range(2):
        assert "error: rank 1 has other training than rank 0; give all ranks the same files" in ranks.log(rank)
    assert not list(tmp_path.glob("finetune-*"))
