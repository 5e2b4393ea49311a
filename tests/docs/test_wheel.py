"""A wheel works without the checkout: built, installed into a new environment, used in an empty folder."""

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCES = ("minbert", "multitask", "studies", "data", "pyproject.toml", "README.md", "LICENSE")
PYTHON = ROOT / ".venv" / "bin" / "python"
PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"
TRAIN = "finetune --epochs 1 --epoch-size 16 --tasks-file data/own/tasks.toml"


@pytest.mark.docs
def test_a_wheel_works_without_the_checkout(tmp_path: Path) -> None:
    sources, wheels, environment, folder = (tmp_path / name for name in ("sources", "wheels", "environment", "empty"))
    folder.mkdir()
    for name in SOURCES:  # a copy: setuptools leaves build/ in the folder, and takes what it finds there
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
