"""A release: what it says of itself, the wheel without the checkout, and the script that repairs an environment."""

import os
import re
import shutil
import subprocess
import tomllib
import venv
from pathlib import Path

import pip
import pytest

from minbert.errors import InputError
from multitask.cli.main import main
from multitask.data.fetch import copy_sample
from tests.conftest import ROOT


def pins(file: Path) -> dict[str, str]:
    """Versions by the packages' normalised names."""
    found = re.findall(r"^([\w.-]+)==([^\s\\]+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub("[-_.]+", "-", name.lower()): version for name, version in found}


def test_version_is_that_of_changelog_and_citation():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert newest is not None
    assert newest[1] == version
    assert f"\nversion: {version}\ndate-released: {newest[2]}\n" in citation


def test_shared_packages_of_the_docs_environment_have_the_same_versions():
    docs, project = pins(ROOT / "docs" / "requirements.txt"), pins(ROOT / "requirements.txt")
    shared = docs.keys() & project.keys()
    assert shared  # Jinja2 at least
    assert {name: docs[name] for name in shared} == {name: project[name] for name in shared}


def test_the_lock_file_has_every_pinned_version_but_torch():
    expected = pins(ROOT / "requirements.txt")
    assert expected.pop("torch")
    assert pins(ROOT / "requirements.lock") == expected, "run scripts/lock_requirements.sh"


def test_every_package_of_the_lock_file_has_a_hash():
    entries = (ROOT / "requirements.lock").read_text().replace("\\\n", "").splitlines()
    assert [entry for entry in entries if not re.fullmatch(r"\S+==\S+(\s+--hash=sha256:[0-9a-f]{64})+", entry)] == []


def test_sample_is_copied(tmp_path, capsys):
    assert main(["data", "sample", "--folder", str(tmp_path / "data")]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "data" / name) for name in ("sample", "own")]
    for name in ("sample", "own"):
        copied = {path.name: path.read_bytes() for path in (tmp_path / "data" / name).iterdir()}
        assert copied == {path.name: path.read_bytes() for path in (ROOT / "data" / name).iterdir()}


def test_existing_data_is_left_alone(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "tasks.toml").write_text("mine")
    with pytest.raises(InputError, match="own: exists already"):
        copy_sample(tmp_path)
    assert (tmp_path / "own" / "tasks.toml").read_text() == "mine"
    assert not (tmp_path / "sample").exists()


# A wheel works without the checkout: built, installed into a new environment, used in an empty folder.


IN_WHEEL = ("minbert", "multitask", "studies", "data", "pyproject.toml", "README.md", "LICENSE")
PYTHON = ROOT / ".venv" / "bin" / "python"
PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"
TRAIN = "finetune --epochs 1 --epoch-size 16 --tasks-file data/own/tasks.toml"


@pytest.mark.docs
def test_a_wheel_works_without_the_checkout(tmp_path):
    sources, wheels, environment, folder = (tmp_path / name for name in ("sources", "wheels", "environment", "empty"))
    folder.mkdir()
    for name in IN_WHEEL:  # a copy: setuptools leaves build/ in the folder, and takes what it finds there
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        sources.mkdir(exist_ok=True)
        copy(ROOT / name, sources / name)
    build = [PYTHON, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(wheels), str(sources)], check=True)
    (wheel,) = wheels.glob("*.whl")
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    # The packages that it needs are those of this environment, so that the test needs no network.
    own, needed = (subprocess.check_output([of, "-c", PACKAGES], text=True).strip() for of in (python, PYTHON))
    Path(own, "needed.pth").write_text(needed, encoding="utf-8")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)

    def run(*command: str | Path) -> str:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(command, cwd=folder, env=clean, check=True, capture_output=True, text=True).stdout

    def multitask(line: str) -> str:
        return run(environment / "bin" / "multitask", *line.split())

    imported = run(python, "-c", "import minbert, multitask; print(minbert, multitask)")
    assert imported.count(str(environment)) == 2
    assert multitask("data sample").split() == ["data/sample", "data/own"]
    assert (folder / "data" / "sample" / "quora-dev.csv").read_bytes() == (
        ROOT / "data/sample/quora-dev.csv"
    ).read_bytes()
    trained = multitask(TRAIN).splitlines()[-1]
    assert "topic" in multitask(f"predict --model {trained} --input data/own/new_messages.txt").splitlines()[0]
    assert Path(own, "studies").exists() is False
    assert multitask("--help").count("experiments") == 1
    table = "experiments run --tasks-file data/own/tasks.toml --epochs 1 --epoch-size 16 --schedulers average"
    assert "report: " in multitask(table)
    assert "Together, average" in (folder / "report" / "index.html").read_text(encoding="utf-8")
    marker = "from pathlib import Path; import {0}; print(Path({0}.__file__).with_name('py.typed').exists())"
    assert all(run(python, "-c", marker.format(name)) == "True\n" for name in ("minbert", "multitask"))


# The environment script repairs what leads elsewhere: an install that is a copy, a checkout that was moved.


MOVED = "moved checkout"  # with a blank, which the first line of a script cannot have


@pytest.mark.docs
def test_the_environment_script_notices_a_copy_and_a_moved_checkout(tmp_path):
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
