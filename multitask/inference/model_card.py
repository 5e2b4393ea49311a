"""The model card of an export: training data, recipe, scores and limits, from the chain of runs that made the model."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from minbert.download_checkpoint import BUNDLED, WEIGHT_FILES, weights_file
from minbert.files import read_json, sha256_of_file
from multitask.data.contamination import TrainedOn
from multitask.evaluation.embedding_geometry import MEASURES
from multitask.evaluation.markup import markdown_code, markdown_text
from multitask.inference.data_of_run import run_of
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.runs.artefact import Artefact, is_run, locate_model, without_folders

HUB_ID_OF_BUNDLED = "sentence-transformers/all-MiniLM-L6-v2"
SUITE_METRICS = {"sts": "spearman", "transfer": "accuracy", "retrieval": "ndcg"}
RANDOM = "random weights"
SUB_SAMPLING = ("train_limit", "epoch_size")  # options with which a stage uses only a part of its data


@dataclass(frozen=True)
class ChainRun:
    """A run of the chain that made the model, as the card shows it."""

    artefact: str  # the folder's name
    stage: str
    start: str  # name of the start weights
    start_sha256: str  # empty without start weights, or with several
    config: Mapping[str, Any]
    data: tuple[tuple[str, str, str, str], ...]  # use, name, folder, fingerprint


@dataclass(frozen=True)
class ListedScore:
    """A score of the model, as the card lists it."""

    data: str  # a split or a suite
    task: str
    metric: str
    value: float
    of_embeddings: bool  # otherwise it is a score of a head, which an export does not include
    trained_on: str = ""  # how many of the rows the model was trained on


def model_card(name: str, revision: str | None, encoder: SentenceEncoder, normalize: bool) -> str:
    """The card as Markdown with YAML front matter, the format of the Hugging Face hub.

    Args:
        name, revision: of the exported model: a run's folder, a model folder, or a checkpoint.
        encoder: the exported model.
        normalize: whether the exported model scales embeddings to length 1.
    """
    folder = locate_model(name, revision)
    stages, roots = _chain(Path(name).resolve())
    roots = roots or [name if revision is None else f"{name}@{revision}"]
    trained_on = TrainedOn.of_folder(folder, name)
    bases = [_hub_id(root) for root in roots]
    title = stages[-1].artefact if stages else folder.resolve().name if Path(name).exists() else name
    scores = _scores(folder)
    front = ModelCardData(
        model_name=title,
        language="en",
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction"],
        base_model=bases[0] if len(bases) == 1 else None,
        eval_results=[
            EvalResult("semantic-similarity", s.task, s.task, s.metric, s.value, dataset_split=s.data)
            for s in scores
            if s.of_embeddings
        ]
        or None,
    )
    card = ModelCard.from_template(
        front,
        template_path=str(Path(__file__).with_name("model_card.md.jinja")),
        title=title,
        roots=[without_folders(root) for root in roots],
        stages=stages,
        scores=scores,
        limits=list(_limits(stages, trained_on)),
        trained_on=trained_on,
        encoder=encoder,
        config=encoder.model.config,
        parameters=sum(parameter.numel() for parameter in encoder.model.parameters()),
        weights=sha256_of_file(weights_file(folder)),
        normalize=normalize,
        to_json=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
        text=markdown_text,
        code=markdown_code,
    )
    return str(card)


def _chain(name: Path) -> tuple[list[ChainRun], list[str]]:
    """The runs that made a model, in their order, and the start weights of the first.

    A run that is no longer at its recorded place is looked for in the folder of the run that used it. If it is not
    there either, its name is listed as start weights.
    """
    stages: dict[str, ChainRun] = {}
    roots: dict[str, None] = {}

    def visit(run: Path) -> None:
        inputs = read_json(run / "inputs.json")
        labels = inputs["labels"]
        parents = [labels[key] for key in ("start", "rewind_to") if key in labels]
        if read_json(run / "config.json").get("from_scratch"):
            parents = [RANDOM]  # the start only gives sizes and a tokenizer
        for parent in dict.fromkeys([*parents, *labels.get("members", "").split()]):
            path = run_of(Path(parent))
            beside = run.parent / path.name
            found = next((place for place in (path, beside) if is_run(place)), None)
            if found is None:
                roots.setdefault(parent)
            elif found.name not in stages:
                visit(found)
        stages[run.name] = _stage(run, inputs)

    if is_run(run := run_of(name)):
        visit(run)
    return list(stages.values()), list(roots)


def _stage(run: Path, inputs: Mapping[str, Any]) -> ChainRun:
    labels, config = inputs["labels"], read_json(run / "config.json")
    rows = [
        (use, name, Path(labels["data"]).name, fingerprint)
        for use in ("training", "views", "dev")
        for name, fingerprint in inputs.get(use, {}).items()
        if fingerprint is not None
    ]
    random = config.get("from_scratch", False)
    return ChainRun(
        run.name,
        run.name.partition("-")[0],
        RANDOM if random else without_folders(labels.get("start") or labels.get("members", "")),
        "" if random else _weights_hash(inputs["parents"]),
        config,
        tuple(rows),
    )


def _weights_hash(parents: Sequence[str | Mapping[str, str]]) -> str:
    """The hash of the only parent's weights; empty for several, and for a run, which the chain has itself."""
    [parent] = parents if len(parents) == 1 else [{}]
    return "" if isinstance(parent, str) else next((parent[name] for name in WEIGHT_FILES if name in parent), "")


def _scores(folder: Path) -> list[ListedScore]:
    """The scores that the run measured when it kept this model, and those that `evaluate` wrote into its folder."""
    run = Artefact(run_of(folder.resolve()))
    scores: list[ListedScore] = []
    if folder.name.startswith("step-") and (run.folder / "metrics.jsonl").is_file():
        step = int(folder.name.removeprefix("step-"))
        line = next(line for line in run.history() if line["step"] == step)
        scores += _of_tasks("dev", line["dev"], run.folder.name.startswith("pretrain-"))
    elif (run.folder / "evaluation.json").is_file():
        scores += _of_tasks("dev", read_json(run.folder / "evaluation.json")["metrics"], False)
    for suite, metric in SUITE_METRICS.items():
        path = folder / f"evaluation-{suite}.json"
        for task, result in (read_json(path)["tasks"] if path.is_file() else {}).items():
            values = result["scores"]["all"] if suite == "sts" else result["scores"]
            seen = f"{result['rows_seen']:,} of {result['rows']:,}"
            scores.append(ListedScore(suite, task, metric, values[metric], True, seen))
    return scores


def _of_tasks(data: str, metrics: Mapping[str, Mapping[str, Any]], of_embeddings: bool) -> list[ListedScore]:
    return [
        ListedScore(data, task, metric, value, of_embeddings)
        for task, values in metrics.items()
        for metric, value in values.items()
        if isinstance(value, float) and metric not in MEASURES
    ]


def _limits(stages: list[ChainRun], trained_on: TrainedOn) -> Iterator[str]:
    """What a user should know before relying on the model."""
    yield "This project's data sets are English; other languages were neither trained on nor evaluated."
    if lines := [without_folders(line) for line in trained_on.unknown]:
        yield f"Its training data is not fully known and may contain test data: {'; '.join(lines)}."
    for stage in stages:
        limits = [f"{key} {stage.config[key]:,}" for key in SUB_SAMPLING if stage.config.get(key) is not None]
        if stage.config.get("quora_share", 1) < 1 and any(name == "quora" for _, name, *_ in stage.data):
            limits.append(f"quora_share {stage.config['quora_share']}")
        if limits:
            yield f"{stage.artefact} was trained on a part of its data: {', '.join(limits)}."
    if any(use == "dev" for stage in stages for use, *_ in stage.data):
        yield (
            "The model is the best of several on the dev sets, so its dev scores are optimistic. Scores on sets of a "
            "few hundred examples are uncertain by several points."
        )


def _hub_id(root: str) -> str | None:
    """The hub id of start weights; None for a folder, even if it no longer exists."""
    if root.lower() == BUNDLED:
        return HUB_ID_OF_BUNDLED
    name = root.partition("@")[0]
    local = Path(name).exists() or re.search("-[0-9a-f]{16}$", name)
    return name if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) and not local else None
