"""Store what a commit does: `python safety_net/store.py --tree CHECKOUT --output FOLDER [--only stages,commands,...]`.

Everything goes through the command line, the public Python names of README.md and HTTP, so that it also works after the
rooms behind them have changed. Every part becomes a JSON file in the output folder. Errors are stored, too.
"""

import argparse
import hashlib
import importlib
import json
import os
import re
import runpy
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HEAVY = (
    "torch", "torch._dynamo", "torchjd.aggregation", "scipy.stats", "sklearn.linear_model", "pandas", "pyarrow.parquet",
    "tokenizers", "pydantic", "jinja2", "matplotlib.figure", "fastapi", "uvicorn",
)  # fmt: skip
"""Packages that every command would import again; commands are forks of a process that has them."""
HIDDEN = re.compile(r"seconds|time|date|started|finished|machine|memory|version|folder", re.IGNORECASE)
"""Keys whose values may differ between two runs of one commit."""
LINES = 60  # of a text file that are stored; of a longer one the first ten and a hash
JOBS = 2
RARE = re.compile(r"error: (--[\w-]+): no such option .*; use --set ")
"""How later versions refuse the flag of a setting that has none any more."""
LISTS = ("--task-weights", "--untrained", "--unlabelled")


class Net:
    """What a chain of cases needs to run and to record.

    Args:
        tree: the checkout whose code runs.
        scratch: a folder for everything that commands read and write; commands run in it.
    """

    def __init__(self, tree: Path, scratch: Path) -> None:
        self.tree = tree
        self.scratch = scratch
        self.found: dict[str, Any] = {}
        self.places: dict[str, Path] = {}  # what stands for names in braces in cases.toml

    def plain(self, text: str) -> str:
        """A text without what differs between two runs: folders, keys of runs, durations."""
        text = text.replace(str(self.scratch), "SCRATCH").replace(str(self.tree), "TREE")
        text = re.sub(r"-[0-9a-f]{8,64}\b", "-KEY", text)
        text = re.sub(r"[\d.,]+ tokens a second|[\d.]+ tokens/s", "SPEED", text)
        return re.sub(r"\b[\d.]+ (s|ms|min|seconds?|minutes?|hours?|h)\b", "DURATION", text).replace("\r", "\n")

    def fork(self, work: Callable[[], Any], out: Path, stdin: str = "", patience: float = 300) -> int:
        """Run a function in a fork, with its streams in files OUT.out and OUT.err; its exit code."""
        source = out.with_suffix(".in")
        source.write_text(stdin)
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            code: Any = 1
            try:
                for number, path, flags in (
                    (0, source, os.O_RDONLY),
                    (1, out.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
                    (2, out.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
                ):
                    os.dup2(os.open(path, flags, 0o644), number)
                os.chdir(self.scratch)
                work()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return 124

    def command(self, name: str, *arguments: object, stdin: str = "", files: Iterable[str] = ()) -> str:
        """Run a command of `python -m multitask` and record exit code, output, last line of errors, and files.

        Returns:
            its output.
        """
        out = self.scratch / f"streams/{os.getpid()}-{digest(name)}"  # each chain has its own process
        out.parent.mkdir(exist_ok=True)

        def work() -> None:
            sys.argv = ["multitask", *map(str, arguments)]
            runpy.run_module("multitask", run_name="__main__", alter_sys=True)

        code = self.fork(work, out, stdin)
        printed, errors = (out.with_suffix(end).read_text(errors="replace") for end in (".out", ".err"))
        if rare := RARE.search(errors):
            return self.command(name, *with_set(list(map(str, arguments)), rare[1]), stdin=stdin, files=files)
        self.record(name, exit=code, output=self.lines(printed))
        if code:
            self.record(name, error=self.plain(errors.strip().rpartition("\n")[2]))
        for file in files:
            self.record(name, **{file: self.content(self.scratch / file)})
        return printed

    def folder(self, printed: str) -> Path:
        """The folder that a command printed last."""
        return self.scratch / (printed.strip().rpartition("\n")[2] or "missing")

    def record(self, name: str, **values: Any) -> None:
        self.found.setdefault(name, {}).update(values)

    def lines(self, text: str) -> list[str]:
        lines = [line.rstrip() for line in self.plain(text).splitlines()]
        shown = lines if len(lines) <= LINES else lines[:10]
        return shown if shown is lines else [*shown, f"{len(lines)} lines, SHA-256 {digest(chr(10).join(lines))}"]

    def content(self, path: Path) -> Any:
        """What a file or folder has."""
        if path.is_dir():
            return {str(p.relative_to(path)): self.content(p) for p in sorted(path.rglob("*")) if p.is_file()}
        if not path.exists():
            return "missing"
        match path.suffix:
            case ".npy":
                import numpy

                array = numpy.load(path)
                return {"shape": list(array.shape), "sha": digest(array.tobytes()), "first": array[:1].tolist()}
            case ".safetensors":
                return tensors(path)
            case ".json":
                return visible(json.loads(self.plain(path.read_text())))
            case ".svg" | ".html" | ".png" | ".md" | ".npz" | ".onnx" | ".tex":
                return "there"  # their layout may change
        return self.lines(path.read_text(errors="replace"))


def with_set(words: list[str], flag: str) -> list[str]:
    """Arguments with `--set NAME=VALUE` in place of a flag and its values."""
    start = words.index(flag)
    end = next((n for n in range(start + 1, len(words)) if words[n].startswith("--")), len(words))
    values, name = words[start + 1 : end], flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    value = values[0] if values else str(not flag.startswith("--no-")).lower()
    if flag in LISTS:
        value = json.dumps([float(v) if v[0].isdigit() else v for v in values])
    words = words[:start] + words[end:]
    before = words.index("--set") + 1 if "--set" in words else len(words)
    return [*words[:before], *([] if "--set" in words else ["--set"]), f"{name}={value}", *words[before:]]


def digest(content: str | bytes) -> str:
    """First half of a SHA-256."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:32]


def tensors(path: Path) -> dict[str, str]:
    """A hash of every tensor by name, and one of all of them that does not depend on names."""
    from safetensors.torch import load_file

    loaded = load_file(path)
    found = {name: digest(f"{t.dtype} {list(t.shape)}".encode() + t.numpy().tobytes()) for name, t in loaded.items()}
    return {"all, whatever their names": digest(" ".join(sorted(found.values())))} | dict(sorted(found.items()))


def visible(value: Any) -> Any:
    """JSON without what may differ between two runs of one commit."""
    if isinstance(value, dict):
        return {key: visible(inner) for key, inner in value.items() if not HIDDEN.search(key)}
    return [visible(inner) for inner in value] if isinstance(value, list) else value


def run_content(net: Net, run: Path) -> dict[str, Any]:
    """Weights, metrics and scores of a run's folder; not its settings, hashes of inputs and states."""
    skipped = {"config.json", "inputs.json", "DONE", "KEEP", "tokenizer.json", "vocab.txt", "trained_on.npz"}
    found: dict[str, Any] = {"files": [], "scores": {}}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_dir() or name.startswith("state"):
            continue
        found["files"].append(name)
        if path.suffix == ".safetensors":
            found.setdefault("weights", {})[name] = tensors(path)
        elif path.suffix == ".jsonl":
            found[name] = [visible(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.name not in skipped and "token" not in path.name and path.name != "multitask.json":
            found["scores"][name] = net.content(path)
    return found


def prepare(net: Net) -> None:
    """Make data, start weights, wrong files, and the two models that the commands use."""
    import cases
    import fixtures

    shutil.copytree(net.tree / "data", net.scratch / "data")
    net.places = fixtures.make(net.tree / "data", net.scratch / "made")
    cases.models(net)
    net.found.clear()


def run_chain(net: Net, chain: Callable[[Net], None], output: Path) -> None:
    """Run a chain of cases; whatever stops it is recorded."""
    try:
        chain(net)
    except Exception as error:
        traceback.print_exc()
        net.record("the chain", error=f"{type(error).__name__}: {net.plain(str(error))}")
    output.write_text(json.dumps(net.found, indent=1, ensure_ascii=False), encoding="utf-8")


def main() -> int:
    """Run all chains of the chosen parts, at most `JOBS` at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, required=True, help="checkout whose code runs")
    parser.add_argument("--output", type=Path, required=True, help="folder of the store; parts that run are replaced")
    parser.add_argument("--only", default="", help="parts, with commas between them; default: all")
    parser.add_argument("--scratch", type=Path, help="folder to keep; default: a temporary one that is removed")
    options = parser.parse_args()
    tree, output = options.tree.resolve(), options.output.resolve()
    os.environ |= {
        "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "COLUMNS": "100",
    }  # fmt: skip
    sys.path.insert(0, str(tree))
    for name in HEAVY:
        try:
            importlib.import_module(name)
        except ImportError:
            print(f"without {name}")
    import cases

    wanted = options.only.split(",") if options.only else [part for part in cases.PARTS if part != "claims"]
    if unknown := set(wanted) - set(cases.PARTS):
        parser.error(f"unknown parts {', '.join(sorted(unknown))}; there are {', '.join(cases.PARTS)}")
    scratch = (options.scratch or Path(tempfile.mkdtemp(prefix="safety-net-"))).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["MULTITASK_CACHE"] = str(scratch / "cache")
    output.mkdir(parents=True, exist_ok=True)
    cpu = next((x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("flags")), "")
    (output / "machine.txt").write_text(digest(cpu), encoding="utf-8")
    net = Net(tree, scratch)
    prepare(net)
    waiting = [(part, name, chain) for part in wanted for name, chain in cases.PARTS[part].items()]
    running: dict[int, tuple[str, str, float]] = {}
    spent: dict[str, float] = {}
    while waiting or running:
        while waiting and len(running) < JOBS:
            part, name, chain = waiting.pop(0)
            pid = os.fork()
            if pid == 0:
                run_chain(net, chain, scratch / f"{part}.{name}.json")
                os._exit(0)
            running[pid] = (part, name, time.monotonic())
        pid, _ = os.wait()
        part, name, start = running.pop(pid)
        spent[part] = spent.get(part, 0) + time.monotonic() - start
        print(f"{part}: {name}, {time.monotonic() - start:.0f} s", flush=True)
        if all(part != other for other, *_ in [*waiting, *running.values()]):
            chains = [json.loads(path.read_text()) for path in sorted(scratch.glob(f"{part}.*.json"))]
            merged = {case: value for found in chains for case, value in found.items()}
            (output / f"{part}.json").write_text(json.dumps(merged, indent=1, ensure_ascii=False), encoding="utf-8")
    print("; ".join(f"{part} {seconds:.0f} s" for part, seconds in spent.items()))
    if not options.scratch:
        shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
