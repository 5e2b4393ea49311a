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
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from minbert.download_checkpoint import resolve
from minbert.errors import InputError
from minbert.files import atomic_folder
from multitask.cli.main import exit_code


def main() -> None:
    """Write the folder and say how large it is. Raises InputError for a folder that is missing or named as another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--start", default="all-minilm-l6-v2")
    parser.add_argument("--data", type=Path, action="append", default=[])
    given = parser.parse_args()
    names = [data.name for data in given.data]
    for data in given.data:
        if not data.is_dir() or names.count(data.name) > 1:
            raise InputError(f"--data {data}: expected a folder, of a name that no other --data has")
    with atomic_folder(given.output) as folder:
        source = resolve(given.start)
        start = folder / "start"
        shutil.copytree(source, start, ignore=shutil.ignore_patterns("*.safetensors", "*.bin", "*.md", "data_config*"))
        weights = load_file(source / "model.safetensors")
        save_file({name: _half(tensor) for name, tensor in weights.items()}, start / "model.safetensors")
        for data in given.data:
            with tarfile.open(folder / f"{data.name}.tar.xz", "w:xz") as archive:
                archive.add(data, data.name)
    size = sum(path.stat().st_size for path in given.output.rglob("*") if path.is_file())
    print(f"{given.output}: {size / 2**20:.1f} MiB")


def _half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


if __name__ == "__main__":
    sys.exit(exit_code(main))
