"""The model card of an export: training data, recipe, scores and limits, from the chain of runs that made the model."""

import json
import re
import shlex
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from minbert.download_checkpoint import BUNDLED, WEIGHT_FILES, weights_files
from minbert.files import nan_for_null, read_json, sha256_of_file
from multitask.base import logger
from multitask.base.runs import Run, is_run, locate_model, run_of, without_folders
from multitask.data.contamination import TrainedOn
from multitask.data.markup import markdown_code, markdown_text
from multitask.evaluation.embeddings import SIMILARITY_MEASURES
from multitask.models.compute_in_batches import PoolingMethod
from multitask.models.model_folder import resolve_pooling, stored_similarity
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.tasks.scores import score_text

HUB_ID_OF_BUNDLED = "sentence-transformers/all-MiniLM-L6-v2"
SUITE_METRICS = {"sts": "spearman", "transfer": "accuracy", "retrieval": "ndcg"}
HUB_TASKS = {"sts": "semantic-similarity", "transfer": "text-classification", "retrieval": "text-retrieval"}
"""What the hub's metadata call the tasks of each suite."""
RANDOM = "random weights"
SUB_SAMPLING = ("train_limit", "epoch_size")  # options with which a stage uses only a part of its data


def model_card(name: str, revision: str | None, encoder: SentenceEncoder, normalize: bool) -> str:
    """The card as Markdown with YAML front matter, the format of the Hugging Face hub.

    `name` and `revision` are those of the exported model: a run, a model folder, or a checkpoint. Of local folders, the
    card has only the last part of a model's name.
    """
    folder = locate_model(name, revision)
    stages, roots = _chain(Path(name).resolve())
    roots = roots or [name if revision is None else f"{name}@{revision}"]
    trained_on = TrainedOn.of_folder(folder, name)
    bases = [_hub_id(root) for root in roots]
    title = stages[-1]["artefact"] if stages else folder.resolve().name if Path(name).exists() else name
    scores = _scores(folder, encoder.pooling, normalize)
    front = ModelCardData(
        model_name=title,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction"],
        base_model=bases[0] if len(bases) == 1 else None,
        eval_results=[
            EvalResult(HUB_TASKS[s["suite"]], s["task"], s["task"], s["metric"], s["value"], dataset_split=s["data"])
            for s in scores
            if s["of_embeddings"] and isfinite(s["value"])
        ]
        or None,
    )
    card = ModelCard.from_template(
        front,
        template_path=str(Path(__file__).with_name("model_card.md.jinja")),
        title=title,
        roots=list(map(_public, roots)),
        stages=stages,
        scores=scores,
        limits=list(_limits(stages, trained_on)),
        trained_on=trained_on,
        encoder=encoder,
        config=encoder.model.config,
        parameters=sum(parameter.numel() for parameter in encoder.model.parameters()),
        weights=", ".join(sha256_of_file(path) for path in weights_files(folder)),
        normalize=normalize,
        similarity=stored_similarity(folder),
        to_json=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
        score_text=score_text,
        text=markdown_text,
        code=markdown_code,
    )
    return str(card)


def _chain(name: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The runs that made a model, in their order, and the start weights of the first.

    A run that is no longer at its recorded place is looked for in the folder of the run that used it. If it is not
    there either, its name is listed as start weights. Those of a teacher are not the model's.
    """
    stages: dict[str, dict[str, Any]] = {}
    own: dict[str, None] = {}

    def visit(run: Path, roots: dict[str, None]) -> None:
        inputs, config = read_json(run / "inputs.json", dict), read_json(run / "config.json", dict)
        labels, random = Run(run).labels, config.get("from_scratch", False)
        parents = [labels[key] for key in ("start", "rewind_to") if key in labels]
        if random:
            parents = [RANDOM]  # the start only gives sizes and a tokenizer
        members, teachers = (shlex.split(labels.get(key, "")) for key in ("members", "teacher"))
        for parent in dict.fromkeys([*parents, *members, *teachers]):
            its_roots = {} if parent in teachers else roots
            path = run_of(parent)
            found = next((place for place in (path, run.parent / path.name) if is_run(place)), None)
            if found is None:
                its_roots.setdefault(parent)
            elif found.name not in stages:
                visit(found, its_roots)
        one = teachers or len(inputs["parents"]) == 1
        hashes = inputs["parents"][0] if one else {}  # a text for a run, which the chain has
        known = [] if random or isinstance(hashes, str) else [hashes[name] for name in WEIGHT_FILES if name in hashes]
        stages[run.name] = {
            "artefact": run.name,
            "stage": run.name.partition("-")[0],
            "start": " ".join(map(_public, parents[:1] or members)),
            "teachers": ", ".join(map(_public, teachers)),
            "start_sha256": next(iter(known), ""),
            "config": config,
            "data": [
                (use, name, fingerprint)
                for use in ("training", "views", "unlabelled", "dev")
                for name, fingerprint in inputs.get(use, {}).items()
                if fingerprint is not None
            ],
        }

    if is_run(run := run_of(name)):
        visit(run, own)
    return list(stages.values()), list(own)


def _scores(folder: Path, pooling: PoolingMethod, normalize: bool) -> list[dict[str, Any]]:
    """The scores that the run measured when it kept this model, and those that `evaluate` wrote into its folder.

    An export has those `of_embeddings`; the others are of a head, which it does not include. A warning names what was
    measured of embeddings with another pooling than the export's, or, if these are scaled to length 1 (`normalize`), by
    classifiers of unscaled ones. Cosines do not depend on the length.
    """

    def is_exported(place: Path, measured: PoolingMethod) -> bool:
        if measured != pooling:
            logger.warning(
                "%s: not in the model card: its scores are those of %s pooling, not of %s", place, measured, pooling
            )
        return measured == pooling

    run = Run(run_of(folder.resolve()))
    metrics, embeddings, rows = {}, False, "dev"
    if folder.name.startswith("step-") and (run.folder / "metrics.jsonl").is_file():
        step = int(folder.name.removeprefix("step-"))
        metrics = next(line["dev"] for line in run.history() if line["step"] == step)
        if embeddings := run.stage == "pretrain":
            metrics = metrics if is_exported(run.folder, resolve_pooling("auto", folder)) else {}
        if read_json(run.folder / "config.json").get("held_out") is not None:
            rows = "held-out training rows"
    elif is_run(run.folder) and (run.folder / "evaluation.json").is_file():
        metrics = run.evaluation()["metrics"]
    own = {"data": rows, "of_embeddings": embeddings, "trained_on": ""}
    scores = [
        {**own, "suite": "retrieval" if "ndcg" in values else "sts", "task": task, "metric": metric, "value": value}
        for task, values in metrics.items()
        for metric, value in values.items()
        if isinstance(value, float) and metric not in SIMILARITY_MEASURES
    ]
    for suite, metric in SUITE_METRICS.items():
        of_own_sets = sorted(folder.glob(f"evaluation-{suite}-*.json"))
        for path in (*folder.glob(f"evaluation-{suite}.json"), *of_own_sets):
            data, measured = path.stem.removeprefix("evaluation-"), read_json(path)
            if not is_exported(path, measured["settings"]["pooling"]):
                continue
            if normalize and suite == "transfer":
                measured_on = "embeddings that are not scaled to length 1"
                logger.warning("%s: not in the model card: its scores are those of %s", path, measured_on)
                continue
            for task, result in measured["tasks"].items():
                value = nan_for_null((result["scores"]["all"] if suite == "sts" else result["scores"])[metric])
                seen = f"{result['rows_seen']:,} of {result['rows']:,}"
                found = {"data": data, "suite": suite, "task": task, "metric": metric, "value": value}
                scores.append({**found, "of_embeddings": True, "trained_on": seen})
    return scores


def _limits(stages: list[dict[str, Any]], trained_on: TrainedOn) -> Iterator[str]:
    """What a user should know before relying on the model."""
    if lines := [without_folders(line) for line in trained_on.unknown]:
        yield f"Its training data is not fully known and may contain test data: {'; '.join(lines)}."
    for stage in stages:
        limits = [f"{key} {stage['config'][key]:,}" for key in SUB_SAMPLING if stage["config"].get(key) is not None]
        if stage["config"].get("quora_share", 1) < 1 and any(name == "quora" for _, name, _ in stage["data"]):
            limits.append(f"quora_share {stage['config']['quora_share']}")
        if limits:
            yield f"{stage['artefact']} was trained on a part of its data: {', '.join(limits)}."
    held_out = any(stage["config"].get("held_out") is not None for stage in stages)
    if held_out or any(use == "dev" for stage in stages for use, *_ in stage["data"]):
        rows = "held-out training rows" if held_out else "the dev sets"
        yield (
            f"The model is the best of several on {rows}, so its scores there are optimistic. Scores on sets of a few "
            "hundred examples are uncertain by several points."
        )


def _public(name: str) -> str:
    """A hub id; of a folder only the last part, because where files lay is nobody else's business."""
    return name if _hub_id(name) else Path(name).name


def _hub_id(root: str) -> str | None:
    """The hub id of start weights; None for a folder, even if it no longer exists."""
    if root.lower() == BUNDLED:
        return HUB_ID_OF_BUNDLED
    name = root.partition("@")[0]
    local = Path(name).exists() or re.search("-[0-9a-f]{16}$", name)
    return name if re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) and not local else None
