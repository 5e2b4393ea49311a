"""What tests of stages share: data for every source, options, and what a stage hands to the training loop."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from minbert.files import sha256_of_file
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.stages import training_run
from multitask.stages.finetune import finetune
from multitask.stages.settings import FinetuneConfig
from multitask.tasks.sources import SOURCE_FILES, Pairs, Triplets, read_texts
from multitask.training.optimizer import Optimizer
from multitask.training.settings import OptimizerConfig
from multitask.training.source import Trainable
from tests.multitask.training.toy import Cut

StageRun = Callable[..., Run]


class Stop(BaseException):
    """Nothing is trained."""


@pytest.fixture(scope="session")
def data(small_data, sample_data, tmp_path_factory) -> Path:
    """The small data with 40 unlabelled sentences, of which no two are equal, 40 triplets and 40 pairs."""
    folder = tmp_path_factory.mktemp("data")
    for path in small_data.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    lines = dict.fromkeys((sample_data / "sentences.txt").read_text(encoding="utf-8").splitlines())
    (folder / "sentences.txt").write_text("\n".join(islice(lines, 40)) + "\n", encoding="utf-8")
    with (sample_data / SOURCE_FILES["nli"][1]).open(encoding="utf-8", newline="") as file:
        (folder / SOURCE_FILES["nli"][1]).write_text("".join(islice(file, 41)), encoding="utf-8", newline="")
    anchors, positives, _ = read_texts(folder / SOURCE_FILES["nli"][1], Triplets.columns).sentences
    pairs = ["\t".join(row) for row in (Pairs.columns, *zip(anchors, positives, strict=True))]
    (folder / SOURCE_FILES["pairs"][1]).write_text("\n".join(pairs) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tuned(data, tiny_encoder, shared_runs) -> Run:
    """The tiny encoder after an epoch of two tasks."""
    options = RunOptions(device="cpu", precision="fp32", runs=shared_runs)
    optimizer = OptimizerConfig(learning_rate=1e-3)
    settings = FinetuneConfig(("sentiment", "similarity"), epochs=1, pooling="mean", max_length=40, optimizer=optimizer)
    return finetune(str(tiny_encoder), data, settings, options)


@pytest.fixture(scope="session")
def shared_runs(tmp_path_factory) -> Path:
    """A folder for the runs of all tests, so that equal trainings are computed once."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def run_stage(tiny_encoder, data, shared_runs, tmp_path) -> StageRun:
    """Run a stage on the tiny encoder and the data, and in the shared folder, unless others are named."""

    def call(
        stage: Callable[..., Run],
        config: Any,
        folder: str | None = None,
        start: Path | Sequence[Path] = tiny_encoder,
        data: Path = data,
        **changes: Any,
    ) -> Run:
        runs = tmp_path / folder if folder else shared_runs
        options = RunOptions(device="cpu", precision="fp32", runs=runs, **changes)
        return stage([start] if isinstance(start, str | Path) else start, data, config, options)

    return call


def weights(artefact: Run) -> dict[str, str]:
    """Checksums of all kept weights."""
    found = artefact.folder.glob("checkpoints/*/*.safetensors")
    return {str(path.relative_to(artefact.folder)): sha256_of_file(path) for path in found}


def history(artefact: Run) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl but for their times."""
    return [{key: value for key, value in line.items() if key != "seconds"} for line in artefact.history()]


@contextmanager
def cut_before_step(number: int) -> Iterator[None]:
    """The training within is cut off before the optimizer's step of this number, from 0."""
    step = Optimizer.step

    def cut(self: Optimizer, current: int) -> None:
        if current == number:
            raise Cut
        step(self, current)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Optimizer, "step", cut)
        with pytest.raises(Cut):
            yield


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """The gradients that a module holds; it holds none afterwards."""
    found = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad(set_to_none=True)
    return found


def embedded(encoder: nn.Module, ids: np.ndarray) -> Tensor:
    """The mean of the states of a sentence that is read alone, [hidden]."""
    return encoder(torch.from_numpy(ids.astype(np.int64))[None]).last_hidden_state[0].mean(dim=0)


@pytest.fixture
def problem(run_stage, monkeypatch) -> Callable[..., Any]:
    """What a stage hands to the training loop, in training mode."""

    def call(stage: Callable[..., Run], config: Any, **arguments: Any) -> Any:
        found: list[Trainable] = []

        def train(trainable: Trainable, *_: Any) -> None:
            found.append(trainable)
            raise Stop

        with monkeypatch.context() as patch:
            patch.setattr(training_run, "train", train)
            with pytest.raises(Stop):
                run_stage(stage, config, folder="not-trained", **arguments)
        found[0].module.train()
        return found[0]

    return call
