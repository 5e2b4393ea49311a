"""The readers of one target of `fuzz`, with inputs that coverage chooses: what reaches new code is changed further.

    pip install atheris  # Linux
    python -m benchmarks.reliability.fuzz_guided TARGET --output FOLDER [--seconds 300]

Inputs that reached new code are kept in FOLDER/corpus, and a later call goes on from them. It ends at the first
problem, whose input is FOLDER/found; what counts as one is defined in `fuzz`.
"""

import argparse
import contextlib
import io
import os
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["minbert", "multitask", "studies", "json", "csv", "tomllib"]):
    from benchmarks.reliability.fuzz import MEMORY, TARGETS, begin, limited, outcome
    from benchmarks.reliability.fuzz_commands import remembered_commands
    from benchmarks.reliability.fuzz_targets import targets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=300)
    options = parser.parse_args()
    folder = options.output.resolve()
    world, corpus = begin(folder / "run"), folder / "corpus"
    corpus.mkdir(exist_ok=True)
    with contextlib.chdir(world), remembered_commands(), limited(MEMORY):
        readers = targets(world)[options.target]
        for number, reader in enumerate(readers):
            (corpus / f"original-{number}").write_bytes(bytes([number]) + reader.original)

        def read(data: bytes) -> None:
            """The first byte chooses the reader."""
            if not data:
                return
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                _, problem = outcome(readers[data[0] % len(readers)], data[1:])
            if problem is not None:
                (folder / "found").write_bytes(data[1:])
                print(f"{options.target}, reader {data[0] % len(readers)}: {problem}", file=sys.__stdout__, flush=True)
                os._exit(1)

        limits = [f"-max_total_time={options.seconds}", "-max_len=20000", "-rss_limit_mb=0", "-timeout=100"]
        shown = ["-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={folder}/"]
        atheris.Setup([sys.argv[0], *limits, *shown, str(corpus)], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
