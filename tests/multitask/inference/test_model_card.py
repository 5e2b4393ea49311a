"""The model card, read by the hub's own reader, agrees with the files of the runs that made the model."""

import json
import re
import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from minbert.download_checkpoint import BUNDLED
from minbert.files import read_json, sha256_of_file, write_json
from multitask.cli.main import main
from multitask.inference.model_card import model_card
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.runs.artefact import Artefact

EXACT = {"device": "cpu", "precision": "fp32"}
SMALL = ("--epochs", "1", "--batch-size", "16", "--device", "cpu", "--precision", "fp32")


@pytest.fixture(scope="module")
def runs(tiny_encoder: Path, small_data: Path, tmp_path_factory) -> Path:
    """A pre-training and a fine-tuning that starts from it."""
    folder = tmp_path_factory.mktemp("runs")
    common = ("--data", str(small_data), "--runs", str(folder))
    options = ("--sources", "quora", "similarity", "--quora-share", "0.5", "--pooling", "mean")
    assert main(["pretrain", "--start", str(tiny_encoder), *common, *options, *SMALL]) == 0
    (start,) = folder.glob("pretrain-*")
    options = ("--tasks", "similarity", "--train-limit", "48")
    assert main(["finetune", "--start", str(start), *common, *options, *SMALL]) == 0
    return folder


def only(runs: Path, stage: str) -> Path:
    (folder,) = runs.glob(f"{stage}-*")
    return folder


def card_of(name: Path | str, normalize: bool = False) -> str:
    return model_card(str(name), None, SentenceEncoder.load(name, **EXACT), normalize)


def section(card: str, title: str) -> str:
    return card.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(text: str) -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in row] for row in rows[2:]]


def test_training_data_are_those_of_the_whole_chain(runs, small_data):
    first, second = only(runs, "pretrain"), only(runs, "finetune")
    expected = [
        [run.name, use, name, small_data.name, fingerprint[:16]]
        for run in (first, second)
        for use in ("training", "dev")
        for name, fingerprint in read_json(run / "inputs.json")[use].items()
    ]
    assert len(expected) == 5
    assert table(section(card_of(second), "Training data")) == expected


def test_the_recipe_is_every_configuration_in_order(runs, tiny_encoder):
    first, second = only(runs, "pretrain"), only(runs, "finetune")
    recipe = section(card_of(second), "Recipe")
    configs = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", recipe, re.DOTALL)]
    assert configs == [read_json(run / "config.json") for run in (first, second)]
    weights = [f" (weights `{sha256_of_file(tiny_encoder / 'model.safetensors')[:16]}`)", ""]  # a run's key says more
    starts = [tiny_encoder.name, first.name]
    for number, (run, start, digest) in enumerate(zip((first, second), starts, weights, strict=True), start=1):
        assert f"{number}. `{run.name}`: {run.name.partition('-')[0]} from {start}{digest}\n" in recipe
    assert sha256_of_file(Artefact(second).model_folder() / "model.safetensors") in recipe


def test_results_are_what_the_kept_state_scored(runs):
    for run, of in ((only(runs, "pretrain"), "the embeddings"), (only(runs, "finetune"), "a head that is not in this")):
        step = int(Artefact(run).model_folder().name.removeprefix("step-"))
        (line,) = (line for line in Artefact(run).history() if line["step"] == step)
        rows = table(section(card_of(run), "Results"))
        measured = line["dev"]["similarity"].items()
        expected = {name: value for name, value in measured if name not in ("alignment", "uniformity")}
        assert [row[:4] for row in rows] == [["dev", "similarity", k, f"{v:.4f}"] for k, v in expected.items()]
        assert all(row[4].startswith(of) for row in rows)


def test_results_of_suites_stand_beside(runs, tmp_path):
    folder = shutil.copytree(Artefact(only(runs, "finetune")).model_folder(), tmp_path / "model")
    similarity = {"all": {"spearman": 0.75, "pearson": 0.5}, "mean": {"spearman": 0.1, "pearson": 0.1}}
    scores = {
        "sts": ("STS12", similarity),
        "transfer": ("MR", {"accuracy": 0.875, "f1": None}),
        "retrieval": ("SICKRetrieval", {"ndcg": 0.5, "mrr": 0.25}),
    }
    for suite, (task, values) in scores.items():
        result = {task: {"rows": 3108, "rows_seen": 12, "scores": values}}
        write_json(folder / f"evaluation-{suite}.json", {"suite": suite, "tasks": result})
    card = card_of(folder)
    assert table(section(card, "Results")) == [
        ["sts", "STS12", "spearman", "0.7500", "the embeddings", "12 of 3,108"],
        ["transfer", "MR", "accuracy", "0.8750", "the embeddings", "12 of 3,108"],
        ["retrieval", "SICKRetrieval", "ndcg", "0.5000", "the embeddings", "12 of 3,108"],
    ]
    assert [result.dataset_name for result in ModelCard(card).data.eval_results] == ["STS12", "MR", "SICKRetrieval"]


def test_scores_of_embeddings_are_in_the_front_matter(runs):
    front = ModelCard(card_of(only(runs, "pretrain"))).data
    assert front.library_name == "sentence-transformers"
    assert front.language == "en"
    assert "base_model" not in front.to_dict()  # a local folder is no base model on the hub
    run = Artefact(only(runs, "pretrain"))
    kept = next(line for line in run.history() if run.model_folder().name.endswith(f"{line['step']:07d}"))
    expected = {name: kept["dev"]["similarity"][name] for name in ("pearson", "spearman")}
    found = {result.metric_type: result.metric_value for result in front.eval_results}
    assert found == pytest.approx(expected)
    assert ModelCard(card_of(only(runs, "finetune"))).data.eval_results is None


def test_limits_name_what_was_left_out(runs):
    limits = section(card_of(only(runs, "finetune")), "Limits")
    assert f"{only(runs, 'finetune').name} was trained on a part of its data: train_limit 48." in limits
    assert f"{only(runs, 'pretrain').name} was trained on a part of its data: quora_share 0.5." in limits
    assert "English" in limits
    assert "optimistic" in limits


def test_no_absolute_path_gets_out(runs, tiny_encoder):
    card = card_of(only(runs, "finetune"))
    assert str(tiny_encoder.parent) not in card
    assert str(runs) not in card


def test_a_kept_model_has_the_card_of_its_run_and_moved_runs_are_found(runs, tmp_path):
    expected = card_of(only(runs, "finetune"))
    assert card_of(Artefact(only(runs, "finetune")).model_folder()) == expected
    moved = shutil.copytree(runs, tmp_path / "moved")
    inputs = read_json(only(moved, "finetune") / "inputs.json")
    inputs["labels"]["start"] = f"/where/they/were/{only(runs, 'pretrain').name}"
    write_json(only(moved, "finetune") / "inputs.json", inputs)
    Artefact(only(moved, "finetune")).finish()
    assert card_of(only(moved, "finetune")) == expected
    shutil.rmtree(only(moved, "pretrain"))
    alone = card_of(only(moved, "finetune"))
    assert f"Start weights: {only(runs, 'pretrain').name}." in alone
    assert "base_model" not in ModelCard(alone).data.to_dict()
    assert len(re.findall("```json", alone)) == 1


@pytest.mark.parametrize(
    ("label", "base"),
    [
        ("bert-base-uncased@v1", "bert-base-uncased"),
        ("someone/tiny", "someone/tiny"),
        ("/gone/tiny", None),
        ("random, with the tokenizer of all-minilm-l6-v2", None),
    ],
)
def test_a_base_is_what_the_hub_has(runs, tmp_path, label, base):
    moved = shutil.copytree(runs, tmp_path / "moved")
    inputs = read_json(only(moved, "pretrain") / "inputs.json")
    inputs["labels"]["start"] = label
    write_json(only(moved, "pretrain") / "inputs.json", inputs)
    Artefact(only(moved, "pretrain")).finish()
    assert ModelCard(card_of(only(moved, "pretrain"))).data.to_dict().get("base_model") == base


def test_a_published_checkpoint_has_no_recipe_but_is_a_base(runs):
    card = card_of(BUNDLED, normalize=True)
    assert ModelCard(card).data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert "The weights of all-minilm-l6-v2 are unchanged." in section(card, "Recipe")
    assert "embeddings of 384 numbers of length 1 from the mean of all tokens' states" in card
    assert "sentences of up to 256 tokens" in card
    assert "Quora" in section(card, "Limits")
    assert not table(section(card, "Results"))


def test_names_of_folders_are_text(tiny_encoder, tmp_path):
    folder = Path(shutil.copytree(tiny_encoder, tmp_path / "model\n# Heading\n<b>`x`"))
    card = model_card(str(folder), None, SentenceEncoder.load(folder, device="cpu"), normalize=False)
    text = card.split("---\n", 2)[2]
    assert "\n# Heading" not in text
    assert "<b>" not in text
    assert text.lstrip().startswith("# model \\# Heading \\<b\\>\\`x\\`\n")
