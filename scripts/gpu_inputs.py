"""Pack start weights and data for a GPU machine without a network: `python -m scripts.gpu_inputs OUTPUT [options]`.

    --start MODEL    weights to begin with, stored in fp16: 45 MB for all-MiniLM-L6-v2 (default)
    --data FOLDER    a data folder, stored as data.tar.xz; any number of times, named by the folders

The scripts `gpu_best.sh`, `gpu_tables.sh` and `gpu_benchmark.sh` read OUTPUT. Trainings from weights in fp16 differ a
little from those of the published weights in fp32, by their rounding.
"""

import argparse
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from minbert.errors import InputError
from minbert.files import atomic_folder
from multitask.base.runs import locate_model, without_folders
from multitask.cli.main import exit_code
from multitask.data.contamination import TrainedOn
from multitask.data.write_tables import check_new_folder


def main() -> None:
    """Write the folder and say how large it is.

    Raises InputError for data that is missing or named as another, other weights, or an output that exists.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--start", default="all-minilm-l6-v2")
    parser.add_argument("--data", type=Path, action="append", default=[])
    given = parser.parse_args()
    names = [data.resolve().name for data in given.data]
    for data, name in zip(given.data, names, strict=True):
        if not data.is_dir() or names.count(name) > 1:
            raise InputError(f"--data {data}: expected a folder, of a name that no other --data has")
    check_new_folder(given.output)
    source = locate_model(given.start)
    if not (source / "model.safetensors").is_file():
        raise InputError(f"--start {given.start}: no model.safetensors; expected weights in one such file")
    with atomic_folder(given.output) as folder:
        start = folder / "start"
        shutil.copytree(source, start, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", "*.md", "data_config*"))
        for path in source.rglob("*.safetensors"):  # also of heads and of further modules
            weights = {name: _half(tensor) for name, tensor in load_file(path).items()}
            save_file(weights, start / path.relative_to(source))
        known = TrainedOn.of_folder(source, given.start)
        replace(known, unknown=tuple(map(without_folders, known.unknown))).keep(start)
        for data, name in zip(given.data, names, strict=True):
            with tarfile.open(folder / f"{name}.tar.xz", "w:xz") as archive:
                archive.add(data, name)
    size = sum(path.stat().st_size for path in given.output.rglob("*") if path.is_file())
    print(f"{given.output}: {size / 2**20:.1f} MiB")


def _half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


if __name__ == "__main__":
    sys.exit(exit_code(main))
