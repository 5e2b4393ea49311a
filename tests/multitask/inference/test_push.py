"""An export in a repository of the hub: one commit of the folder, nothing private in it, refusals in a line."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest

from minbert.files import write_json
from multitask import SentenceEncoder
from multitask.cli.main import main
from multitask.inference import push
from multitask.runtime.options import RunOptions
from multitask.stages.finetune import finetune
from multitask.stages.settings.finetune import FinetuneConfig

NAME = "someone/small"


@pytest.fixture
def export(tiny_encoder: Path, tmp_path: Path, monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Runs `export --push` with a token in an empty working folder; returns exit code, output and errors."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(*options: str, model: Path = tiny_encoder, push: str = NAME) -> tuple[int, str, str]:
        code = main(["export", "--model", str(model), "--push", push, *options])
        return code, *capsys.readouterr()

    return run


def test_one_commit_has_the_bytes_of_the_folder_and_loads_as_the_same_encoder(hub, tiny_encoder, export, tmp_path):
    code, printed, _ = export("--output", str(tmp_path / "out"), "--private")
    assert (code, printed) == (0, f"{tmp_path / 'out'}\n{huggingface_hub.constants.ENDPOINT}/{NAME}\n")
    sent = {p.relative_to(tmp_path / "out").as_posix(): p.read_bytes() for p in (tmp_path / "out").rglob("*.*")}
    assert hub.repositories == {NAME: {"main": sent}}
    assert (hub.commits, hub.private) == ([(NAME, "Bearer hf_secret")], {NAME})
    assert f'SentenceTransformer("{NAME}")' in sent["README.md"].decode()
    ours, theirs = (SentenceEncoder.load(name, device="cpu", precision="fp32") for name in (tiny_encoder, NAME))
    np.testing.assert_array_equal(theirs.encode(["A gem."]), ours.encode(["A gem."]))
    assert export("--normalize")[0] == 0  # a later one needs no folder, and leaves none
    assert {"2_Normalize/config.json", *sent} == hub.repositories[NAME]["main"].keys()
    assert not any((tmp_path / "here").iterdir())


def test_a_dry_run_lists_what_would_be_sent_without_a_token_and_asks_nobody(hub, export, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    code, printed, _ = export("--dry-run", "--output", str(tmp_path / "out"))
    folder, where, *rows = printed.splitlines()
    assert code == 0
    assert folder == str(tmp_path / "out")
    assert where == f"would be sent to {huggingface_hub.constants.ENDPOINT}/{NAME} (public if new):"
    expected = {
        path.relative_to(folder).as_posix(): (f"{path.stat().st_size:,}", hashlib.sha256(path.read_bytes()).hexdigest())
        for path in Path(folder).rglob("*.*")
    }
    assert {name: tuple(rest) for name, *rest in map(str.split, rows)} == expected
    assert hub.requested == []
    assert hub.repositories == {}


def test_nothing_that_is_pushed_names_folders_data_or_users(hub, export, tiny_encoder, small_data, tmp_path):
    home = tmp_path / "home" / "alice liddell" / "acme-secret"
    start = Path(shutil.copytree(tiny_encoder, home / "models" / "start"))
    local = {"name_or_path": str(start), "special_tokens_map_file": str(start / "special_tokens_map.json")}
    settings = {"model_max_length": 64, **local}
    write_json(start / "tokenizer_config.json", settings)
    data = Path(shutil.copytree(small_data, home / "customers-of-acme-secret"))
    config = FinetuneConfig(tasks=("similarity",), epochs=1, train_limit=16)
    run = finetune(str(start), data, config, RunOptions("cpu", "fp32", home / "runs")).folder
    for moved in (run, Path(shutil.copytree(run, tmp_path / run.name))):  # its start weights are there, or not
        if moved is not run:
            shutil.rmtree(home)
        assert export(model=moved)[0] == 0
        sent = hub.repositories[NAME]["main"]
        assert json.loads(sent["tokenizer_config.json"]) == {"model_max_length": 64}
        for secret in ("alice", "liddell", "acme", "customers", str(tmp_path)):
            for encoding in ("utf-8", "utf-32-le"):  # the second is numpy's
                assert [name for name, content in sent.items() if secret.encode(encoding) in content] == []


def test_without_a_token_nothing_is_computed(export, tmp_path, monkeypatch):
    monkeypatch.setattr(push.huggingface_hub, "get_token", lambda: None)
    assert export(model=tmp_path / "none") == (
        2,
        "",
        f"error: --push {NAME}: no token; set HF_TOKEN, log in with `hf auth login`, or use --dry-run\n",
    )


@pytest.mark.parametrize(
    ("fails", "line"),
    [
        ({"create": 403}, f"--push {NAME}: nothing was sent (the fake hub refuses)"),
        ({"create": None}, f"--push {NAME}: nothing was sent ("),
        ({"preupload": 403}, f"--push {NAME}: failed on the way; the repository has all files of this export or none"),
        ({"commit": 400}, f"--push {NAME}: failed on the way; the repository has all files of this export or none"),
        ({"commit": None}, f"--push {NAME}: failed on the way; the repository has all files of this export or none"),
    ],
    ids=str,
)
def test_failures_of_the_hub_are_one_line_that_says_what_was_sent(hub, export, fails, line):
    hub.fails = fails
    code, printed, error = export()
    assert (code, printed) == (2, "")
    assert error.startswith(f"error: {line}")
    assert error.count("\n") == 1
    assert "hf_secret" not in error
    assert hub.commits == []
    hub.fails = {}
    assert export()[0] == 0  # the same command again
    assert len(hub.commits) == 1


def test_a_private_push_into_a_public_repository_is_refused(hub, export):
    hub.repositories[NAME] = {"main": {}}
    code, _, error = export("--private")
    assert code == 2
    assert error.startswith(f"error: --push {NAME}: nothing was sent, as it is public")
    assert hub.commits == []
