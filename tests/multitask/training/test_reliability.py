"""Training ends with good weights or an error; a damaged state is put aside; epochs are planned in their turn."""

import errno
import logging

import pytest
import torch

from benchmarks.reliability.faulty_files import Fault, FaultyFiles
from minbert.errors import InputError
from multitask.runtime.errors import TrainingError
from multitask.training.config import OptimizerConfig
from multitask.training.loop import MOST_SCHEDULED_EPOCHS, LoopConfig
from tests.multitask.training.toy import NEVER, Cut, Problem, cut_before, result, run

EXPLODING = OptimizerConfig(learning_rate=1e300, weight_decay=1e300)


class OneStep(Problem):
    """Its only epoch is one step, so that no later loss can show what the step did to the weights."""

    def plan(self, epoch):
        return super().plan(epoch)[:1]


@pytest.mark.parametrize("evaluate_every", [None, 1])
@pytest.mark.parametrize("save_every", [NEVER, -1])
def test_a_last_step_that_spoils_the_weights_keeps_nothing(tmp_path, evaluate_every, save_every):
    config = LoopConfig(1, EXPLODING, evaluate_every=evaluate_every)
    with pytest.raises(TrainingError, match=r"step 1: the weights encoder\.0\.weight are NaN or infinite"):
        run(tmp_path, OneStep(), config, save_every=save_every)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_step_that_spoils_the_weights_saves_no_state(tmp_path):
    config = LoopConfig(1, EXPLODING, evaluate_every=99)
    with pytest.raises(TrainingError, match="step 1: the weights"):
        run(tmp_path, Problem(), config, save_every=-1)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("place", [0, 0.6, -1])
def test_a_damaged_state_is_put_aside_and_computed_again(tmp_path, place, caplog):
    run(tmp_path / "whole")
    folder = tmp_path / "cut"
    with pytest.raises(Cut):
        run(folder, step=cut_before(9), save_every=-1)
    path = folder / "state" / "state.pt"
    content = bytearray(path.read_bytes())
    content[int(place * len(content)) if 0 < place < 1 else place] ^= 1
    path.write_bytes(content)
    caplog.set_level(logging.WARNING)
    run(folder)
    assert "state.pt: damaged; put aside as damaged-state.pt, and training begins again" in caplog.text
    assert (folder / "state" / "damaged-state.pt").read_bytes() == content
    (folder / "state" / "damaged-state.pt").unlink()
    assert result(folder) == result(tmp_path / "whole")


@pytest.mark.parametrize("length", [0, 64, 1000])
def test_a_truncated_state_is_put_aside_too(tmp_path, length, caplog):
    with pytest.raises(Cut):
        run(tmp_path, step=cut_before(3), save_every=-1)
    path = tmp_path / "state" / "state.pt"
    path.write_bytes(path.read_bytes()[:length])
    run(tmp_path)
    assert "damaged; put aside" in caplog.text


class Counted(Problem):
    """Counts the epochs that are planned."""

    planned = 0

    def plan(self, epoch):
        self.planned = max(self.planned, epoch + 1)
        return super().plan(0)


@pytest.mark.parametrize("evaluate_every", [None, 2])
def test_epochs_are_planned_when_their_first_step_comes(tmp_path, evaluate_every):
    problem = Counted()
    config = LoopConfig(10**12, OptimizerConfig(0.03), evaluate_every=evaluate_every)
    with pytest.raises(Cut):
        run(tmp_path, problem, config, step=cut_before(4), save_every=-1)
    assert problem.planned == 2
    with pytest.raises(Cut):  # and likewise when it goes on
        run(tmp_path, problem := Counted(), config, step=cut_before(4))
    assert problem.planned <= 3


def test_a_schedule_that_plans_all_epochs_bounds_them():
    for optimizer in (OptimizerConfig(schedule="linear"), OptimizerConfig(warmup=0.1)):
        LoopConfig(MOST_SCHEDULED_EPOCHS, optimizer)
        with pytest.raises(InputError, match="epochs is 99999999; expected at most 10000 with"):
            LoopConfig(99_999_999, optimizer)


def test_a_disk_that_fails_while_a_state_is_written_is_named(tmp_path, monkeypatch):
    """torch fails again when it ends the file, with an error of its own."""
    layer = FaultyFiles(tmp_path, Fault(errno.EIO, ("write",), lasting=False), 0)
    save = torch.save

    def failing(state, file):
        with layer.installed(), open(file.name, "wb") as faulty:  # noqa: PTH123
            save(state, faulty)

    monkeypatch.setattr(torch, "save", failing)
    with pytest.raises(OSError, match="Input/output error") as caught:
        run(tmp_path, save_every=-1)
    assert caught.value.filename == str(tmp_path / "state" / "state.pt")
