"""Runs of version 0.1 (see version_0_1/README.md) are read, or refused in one line that says what to do."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.reliability.world import COMPUTED, CPU, call, copy

STORE = Path(__file__).with_name("version_0_1")
FINETUNED = "runs/finetune-by-hand-0f9055791da38c19"
PRETRAINED = "runs/pretrain-nli-cd780f58ba756c1a"
MODEL = f"{FINETUNED}/checkpoints/step-0000002"
START = f"{PRETRAINED}/checkpoints/step-0000002"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, as the current folder."""
    folder = copy(STORE, tmp_path / "store")
    monkeypatch.chdir(folder)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """All files but locks."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.stat().st_size}


def finetune(start: str, *more: str) -> list[str]:
    return ["finetune", "--start", start, "--data", "data", "--tasks", "sentiment", "--epochs", "1", *CPU, *more]


DIRECTLY = rf"{FINETUNED}: of version 0\.1, .*; use its model {MODEL}, or delete it and run"
REFUSED = {
    "predict": (["predict", "--model", FINETUNED, "--data", "data", *COMPUTED], DIRECTLY),
    "embed": (["embed", "sentences.txt", "out.npy", "--model", FINETUNED, *COMPUTED], DIRECTLY),
    "evaluate": (["evaluate", "--model", FINETUNED, "--data", "data", *COMPUTED], DIRECTLY),
    "export": (["export", "--model", FINETUNED, "--output", "out"], DIRECTLY),
    "ensemble": (["ensemble", "--model", FINETUNED, FINETUNED, "--data", "data", *COMPUTED], DIRECTLY),
    "start": (finetune(PRETRAINED), rf"{PRETRAINED}: of version 0\.1, .*; use its model {START}, or"),
    "settings": (finetune("encoder", "--config", FINETUNED), "a run of an older version; .* takes a TOML file"),
    "report": (["report"], r"experiments-sample\.json: .* 0\.1, .*; run `multitask experiments run sample` again"),
    "gc": (["experiments", "gc", "--delete"], r"experiments-sample\.json: .*`multitask experiments run sample` writes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line_that_says_what_to_do(store, name):
    arguments, expected = REFUSED[name]
    before = files(store)
    code, output, errors = call(arguments)
    assert (code, output) == (2, "")
    assert "Traceback" not in errors
    [told] = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert told == errors.splitlines()[-1]
    assert re.search(expected, told)
    assert files(store) == before


def test_a_model_predicts_as_it_did(store):
    code, output, _ = call(["predict", "--model", MODEL, "--data", "data", "--output", "now", *COMPUTED])
    assert (code, output.split()) == (0, ["now/sst-dev-output.csv", "now/sst-test-output.csv"])
    assert files(store / "now") == files(store / "predicted")


def test_a_model_embeds_as_it_did(store):
    assert call(["embed", "sentences.txt", "now.npy", "--model", MODEL, *COMPUTED])[0] == 0
    np.testing.assert_allclose(np.load("now.npy"), np.load("embeddings.npy"), atol=1e-5)


@pytest.mark.parametrize("start", [START, MODEL])
def test_a_training_starts_from_a_model(store, start):
    code, output, errors = call(finetune(start))
    assert code == 0, errors
    assert (store / output.split()[-1] / "DONE").stat().st_size


def test_runs_are_listed_and_shown(store):
    code, output, _ = call(["experiments", "list"])
    states = {line.split()[0]: line.split()[1] for line in output.splitlines()[1:-1]}
    assert code == 0
    assert states.pop("finetune-stopped-ea1b2ddd02bdc5e1") == "unfinished"
    assert len(states) == 5
    assert set(states.values()) == {"version"}
    for run in (path.parent.name for path in store.glob("runs/*/inputs.json")):
        code, output, errors = call(["experiments", "show", run])
        assert (code, errors) == (0, "")
        assert run in output.splitlines()[-1]


def test_they_are_not_called_damaged(store):
    assert call(["experiments", "verify"])[:2] == (0, "0 complete runs, 0 damaged, 5 of version 0.1 (not checked)\n")


def test_an_empty_list_of_hashes_is_damage_in_a_newer_run(store):
    run = Path(call(finetune("encoder"))[1].split()[-1])
    (run / "DONE").write_text("")
    code, output, _ = call(["experiments", "verify"])
    assert code == 1
    assert output.splitlines()[-1] == "1 complete runs, 1 damaged, 5 of version 0.1 (not checked)"


def test_gc_leaves_complete_runs_to_people(store):
    (store / "runs" / "experiments-sample.json").unlink()
    assert call(["experiments", "gc", "--delete"])[0] == 0
    assert len(list(store.glob("runs/*/DONE"))) == 5
    assert not list(store.glob("runs/finetune-stopped-*"))
    assert call(["experiments", "gc", "--delete", Path(FINETUNED).name])[0] == 0
    assert not (store / FINETUNED).exists()
