"""What the safety net runs: chains of cases by part. A chain needs nothing of the others."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from store import Net, digest, run_content

CASES = tomllib.loads((Path(__file__).parent / "cases.toml").read_text(encoding="utf-8"))
SIZES = {
    "pretrain": "--epochs 1 --train-limit 32 --learning-rate 1e-3",
    "mlm": "--epochs 1 --train-limit 32 --learning-rate 1e-3",
    "finetune": "--epochs 1 --epoch-size 32 --learning-rate 1e-3",
    "fuse": "--epochs 1 --epoch-size 32 --learning-rate 1e-3",
    "prune": "--train-limit 32",
    "ensemble": "",
}
COMPUTING = {"evaluate", "predict", "embed", "probe", *SIZES}
OUTPUTS = ("--output", "--details", "--save-config", "--folder")
OPTION = re.compile(r"^  (--[\w-]+|[A-Z]+ |\w[\w-]+  )(.*(?:\n {4,}.*)*)", re.MULTILINE)


def models(net: Net) -> None:
    """The models that commands use: `course` and `own`."""
    for name, data in {"course": "--data {small}", "own": "--tasks-file {tasks}"}.items():
        stage(net, name, f"finetune {data} --epochs 2 --head-learning-rate 1e-2")


def stage(net: Net, name: str, text: str) -> None:
    """Run a training stage with a small size, and record the kept weights, metrics and scores of its run."""
    command, *options = shlex.split(text.format_map(net.places))
    if command == "finetune" and "--config" not in options:
        options = ["--config", str(Path(__file__).with_name("report.toml")), *options]
    for size in (f"--runs runs/{digest(name)} --threads 1", "--precision fp32", "--start {tiny}", SIZES[command]):
        if size.split() and size.split()[0] not in options and not (command == "ensemble" and "--start" in size):
            options = [*shlex.split(size.format_map(net.places)), *options]
    if "--tasks-file" not in options and "--data" not in options:
        options += ["--data", str(net.places["small"])]
    run = net.folder(net.command(name, command, *options))
    if run.is_dir():
        net.record(name, **run_content(net, run))
    net.places[name] = run


def section(part: str, chain: str, net: Net) -> None:
    """Run the cases of a table of cases.toml."""
    cases = CASES[part][chain]
    if chain == "mistakes":
        here = "--start {tiny} --data {small}"
        cases = {line: line.replace("HERE", here) for line in cases["list"].split("\n") if line}
    for name, text in cases.items():
        if part == "stages":
            stage(net, name, text)
            continue
        words = shlex.split(text.format_map(net.places))
        if words[0] in COMPUTING and chain != "mistakes" and not {"--precision", "--config"} & set(words):
            words += ["--precision", "fp32"]
        files = [word for before, word in pairwise(words) if before in OUTPUTS]
        new = (net.tree / "data/own/new_messages.txt").read_text()
        printed = net.command(
            name,
            *words,
            stdin=new,
            files=[*files, *(w for w in words if w.endswith(".npy"))] if chain != "mistakes" else [],
        )
        if words[0] == "simulate" and chain != "mistakes":
            net.record(name, run=run_content(net, net.folder(printed)))


def options_and_defaults(net: Net) -> None:
    """The options of every command with their choices and defaults, and which of them --help shows."""
    for name in CASES["help"]["commands"].split(","):
        texts = [net.command(f"{name} {which}", *name.split(), which) for which in ("--help", "--help-all")]
        few, every = ({found[1].strip(): " ".join(found[2].split()) for found in OPTION.finditer(t)} for t in texts)
        net.found = {key: value for key, value in net.found.items() if not key.startswith(f"{name} --help")}
        net.record(name, few=sorted(few))
        for option, text in every.items():
            found = (re.search(pattern, text) for pattern in (r"\(default: [^()]*\)", r"\(required\)", r"\{[^}]*\}"))
            net.record(f"{name} {option}", value=[match[0] for match in found if match])
    net.command("the list of commands", "--help")


def python(net: Net) -> None:
    """The public names of README.md; what fails is recorded as text."""
    import torch

    from minbert import BertConfig, BertModel, load_tokenizer
    from multitask import FinetuneConfig, MultitaskModel, SentenceEncoder, finetune, load_tasks
    from multitask.objectives import OBJECTIVES, build_objective

    def tried(name: str, work: Callable[[], Any]) -> None:
        try:
            value = work()
            found = [digest(str(v.tolist())) for v in value] if isinstance(value, tuple) else net.plain(str(value))
        except Exception as error:
            found = net.plain(f"{type(error).__name__}: {error}")
        net.record(name, value=found)

    texts, tiny, tasks = ["A gem.", "Where is my refund?"], str(net.places["tiny"]), str(net.places["tasks"])
    model, tokenizer = BertModel.from_pretrained(tiny).eval(), load_tokenizer(tiny)
    tried("config", lambda: model.config)
    tried("a config of one's own", lambda: BertConfig(vocab_size=10, hidden_size=12, num_attention_heads=3))
    tried("packed", lambda: (model.forward_packed(tokenizer.pack(texts)),))
    tried("sentence embeddings", lambda: SentenceEncoder.load(tiny).encode(texts, normalize=True).tolist())
    tried("predictions", lambda: MultitaskModel.load(net.places["own"]).predict_all(texts))
    tried("a prediction", lambda: MultitaskModel.load(net.places["course"]).predict("sentiment", texts))
    tried("tasks", lambda: list(load_tasks(net.places["tasks"])))
    tried("a run", lambda: Path(finetune(tiny, tasks, FinetuneConfig(epochs=1, epoch_size=16)).folder).is_dir())
    random = torch.Generator().manual_seed(0)
    anchors, positives, hard = (torch.randn(6, 8, generator=random).requires_grad_() for _ in range(3))

    def loss_and_gradient(name: str, negatives: Any = None, **parameters: float) -> tuple[Any, ...]:
        loss = build_objective(name, **parameters)(anchors, positives, negatives)
        return loss, *torch.autograd.grad(loss, [anchors, positives])

    tried("objectives", lambda: sorted(OBJECTIVES))
    for name in OBJECTIVES:
        tried(f"objective {name}", partial(loss_and_gradient, name))
        tried(f"{name}, components", partial(loss_and_gradient, name, dissipation=0.3, weight=0.05, ratio=1.5))
        tried(f"{name}, hard negatives", partial(loss_and_gradient, name, hard))
    tried("a wrong parameter", lambda: build_objective("infonce", tau=1))


def markdown_tables(net: Net, name: str, text: str) -> None:
    """Record the cells of all tables of a page by the headings above them and their rows' first cells."""
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        elif line.startswith("|") and not set(line) <= set("|-: "):
            first, *cells = (cell.strip() for cell in line.strip("| ").split(" | "))
            if first[:1] in "✓✗?∎–":  # a claim: its text is the key, its verdict comes first
                first, cells = f"{cells[0]} {cells[1]}", [first, *cells[2:]]
            while first in found[heading]:
                first += "'"
            found[heading][first] = cells
    for heading, rows in found.items():
        if heading != "Speed and cost":
            net.record(f"{name}: {heading}", rows=rows)


def results_of(net: Net, name: str, path: Path) -> None:
    """Record all scores, intervals and p-values of a file of results, by table and row."""
    from studies import Results

    for line in Results.load(path).to_pandas().to_dict("records"):
        values = [line[key] for key in ("value", "low", "high", "difference", "p", "published")]
        where = net.found.setdefault(f"{name}, table {line['table']}", {}).setdefault(str(line["row"]), {})
        where[f"{line['task']} {line['metric']} seed {line['seed']}"] = [None if v != v else v for v in values]


def results(net: Net) -> None:
    """The published scores."""
    for path in sorted((net.tree / "docs/studies/results").glob("*.parquet")):
        results_of(net, path.stem, path)


def pages(net: Net) -> None:
    """The pages of studies, written anew from emptied places, and the published verdicts."""
    copy = net.scratch / "tree"
    for part in ("docs", "scripts", "studies", "multitask", "minbert"):
        shutil.copytree(net.tree / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    for page in (copy / "docs/studies").glob("*.md"):
        begin, end = r"(<!-- results: [^>]*-->\n)", r"(<!-- end of results -->)"
        page.write_text(re.sub(rf"{begin}.*?{end}", r"\1\2", page.read_text(), flags=re.DOTALL))
    command, variables = [sys.executable, "-m", "scripts.refresh_study_pages"], os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=copy, env=variables, capture_output=True, text=True, check=False)
    net.record("refresh", exit=done.returncode, output=done.stdout.splitlines(), error=done.stderr[-300:])
    net.record("figures", files=sorted(p.name for p in (copy / "docs/studies/figures").iterdir()))
    for page in sorted((copy / "docs/studies").glob("*.md")):
        markdown_tables(net, page.name, page.read_text())


def experiments(name: str, options: str, net: Net) -> None:
    """Run tables, and record their scores as data, their report's tables and verdicts, and what looks after runs."""
    words = shlex.split(options.format_map(net.places))
    start = f"--start {net.places['tiny']} --runs {name} --seeds 2 --precision fp32".split()
    net.command("plan", "experiments", "plan", *words, *start)
    workers = 2 if name == "claims" else 1  # claims are the only chain of their part
    options = f"experiments run {shlex.join(words)} {shlex.join(start)} --workers {workers} --report {name}-report"
    command = [sys.executable, "-m", "multitask", *shlex.split(options)]
    with (net.scratch / f"{name}.log").open("w") as log:
        code = subprocess.call(command, cwd=net.scratch, stdout=log, stderr=log)
    errors = [line for line in (net.scratch / f"{name}.log").read_text().splitlines() if line.startswith("error")]
    net.record(
        "run", exit=code, runs=len(list((net.scratch / name).glob("*/DONE"))), errors=net.plain("\n".join(errors))
    )
    results_of(net, "scores", net.scratch / f"{name}-report/results.parquet")
    for page in (net.scratch / f"{name}-report").glob("*.md"):
        markdown_tables(net, page.name, net.plain(page.read_text()))
    net.command(
        "report again", "report", words[0] if words[0] == "sample" else "tasks", "--runs", name, "--report", f"{name}-2"
    )
    net.record("report again", files=sorted(p.name for p in (net.scratch / f"{name}-2").rglob("*")))
    for look in ("list", "verify", "gc"):
        net.command(f"experiments {look}", "experiments", look, "--runs", name)
        net.found[f"experiments {look}"]["output"].sort()
    net.found = {f"{name}: {key}": value for key, value in net.found.items()}


def ask(name: str, options: str, net: Net) -> None:
    """Start a service, record its answers, and stop it."""
    words = shlex.split(options.format_map(net.places))
    command = [sys.executable, "-m", "multitask", name, *words, "--port", "0", "--precision", "fp32"]
    with (net.scratch / f"{name}.log").open("w") as log:
        service = subprocess.Popen(command, cwd=net.scratch, stdout=log, stderr=log)
    end, found = time.monotonic() + 120, None
    while not found and time.monotonic() < end and service.poll() is None:
        time.sleep(0.2)
        found = re.search(r"http://[\d.]+:\d+", (net.scratch / f"{name}.log").read_text())
    for line in CASES["requests"][name].strip().splitlines():
        method, route, body = [*line.split(" ", 2), ""][:3]
        net.record(f"{name}: {line}", **answer(net, f"{found[0] if found else 'http://none'}{route}", method, body))
    service.send_signal(signal.SIGTERM)
    net.record(f"{name} ends", exit=service.wait(60))


def answer(net: Net, url: str, method: str, body: str) -> dict[str, Any]:
    """The status and content of an answer; of pages, scripts and metrics not the content."""
    header = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body.encode() or None, header, method=method)
    try:
        try:
            reply = urllib.request.urlopen(request, timeout=120)
        except urllib.error.HTTPError as error:
            reply = error
        status, kind, content = reply.status, reply.headers["Content-Type"], reply.read().decode()
    except OSError as error:
        return {"error": str(error)}
    if "json" in kind:
        return {"status": status, "json": json.loads(net.plain(content))}
    if url.endswith("/metrics"):
        return {
            "status": status,
            "names": sorted({line.split()[2] for line in content.splitlines() if line[:6] == "# TYPE"}),
        }
    return {"status": status, "type": kind} | ({"lines": net.lines(content)} if "csv" in kind else {})


GRID = "sample --data {small} --suites-data {senteval} --tables "
PARTS: dict[str, dict[str, Callable[[Net], None]]] = {
    "grid": {
        "grid": partial(experiments, "grid", f"{GRID}1,2,7,figure2,decoupled,pairs"),
        "own-grid": partial(
            experiments, "own-grid", "--tasks-file {tasks} --schedulers average pcgrad --epochs 1 --epoch-size 32"
        ),
    },
    "stages": {chain: partial(section, "stages", chain) for chain in CASES["stages"]},
    "commands": {chain: partial(section, "commands", chain) for chain in CASES["commands"] if chain != "mistakes"},
    "mistakes": {"mistakes": partial(section, "commands", "mistakes")},
    "help": {"help": options_and_defaults},
    "python": {"python": python},
    "tables": {"pages": pages, "results": results},
    "service": {
        "serve": partial(ask, "serve", "--model own={own} course={course} tiny={tiny} --texts 8 --characters 33"),
        "explore": partial(
            ask, "explore", "--model a={course} --compare b={tiny} --data {small} --no-browser --rows 20"
        ),
    },
    "claims": {
        "claims": partial(experiments, "claims", f"{GRID}simulations,gradient,objectives-suites,decoupled,sparsity")
    },
}
