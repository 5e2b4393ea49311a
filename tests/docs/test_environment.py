"""The environment script repairs what leads elsewhere: an install that is a copy, a checkout that was moved."""

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pip
import pytest

from tests.conftest import ROOT

MOVED = "moved checkout"  # with a blank, which the first line of a script cannot have


@pytest.mark.docs
def test_the_environment_script_notices_a_copy_and_a_moved_checkout(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("minbert", "multitask", "studies", "data", "scripts"):
        shutil.copytree(ROOT / name, checkout / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, checkout / name)
    (checkout / "requirements.txt").touch()  # needs no network
    venv.create(checkout / ".venv")

    def run(*command: str, folder: Path = tmp_path) -> str:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PIP_NO_DEPS": "1"}
        done = subprocess.run(command, cwd=folder, env=clean, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def found_in(folder: Path) -> bool:
        python = str(folder / ".venv/bin/python")
        return run(python, "-c", "import multitask; print(multitask.__file__)") == str(folder / "multitask/__init__.py")

    packages = run(str(checkout / ".venv/bin/python"), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    Path(packages, "needed.pth").write_text(str(Path(pip.__file__).parents[1]), encoding="utf-8")
    environment = ("bash", "scripts/environment.sh")
    run(*environment, folder=checkout)
    assert found_in(checkout)
    run(".venv/bin/python", "-m", "pip", "install", "--no-build-isolation", ".", folder=checkout)
    assert not found_in(checkout)
    run(*environment, folder=checkout)
    assert found_in(checkout)
    moved = checkout.rename(tmp_path / MOVED)
    run(*environment, "serve", "onnx", folder=moved)
    assert found_in(moved)
    assert run(str(moved / ".venv/bin/multitask"), "--help").startswith("usage: multitask")
    assert run(*environment, folder=moved) == ""  # whole, so there is nothing to do
    refused = subprocess.run([*environment, "onyx"], cwd=moved, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "no extra onyx" in refused.stderr
