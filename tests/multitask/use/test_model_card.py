"""The model card, read by the hub's own reader, agrees with the files of the runs that made the model."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from minbert.download_checkpoint import BUNDLED
from minbert.files import read_json, sha256_of_file, write_json
from multitask.base.runs import Run
from multitask.cli.main import main
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import Pooling
from multitask.models.transformers_model import TransformersConfig
from multitask.use.model_card import model_card

SMALL = ("--epochs", "1", "--batch-size", "16", "--device", "cpu", "--precision", "fp32")


@pytest.fixture(scope="module")
def runs(tiny_encoder, small_data, tmp_path_factory) -> Path:
    """A pre-training and a fine-tuning that starts from it."""
    folder = tmp_path_factory.mktemp("runs")
    common = ("--data", str(small_data), "--runs", str(folder))
    options = ("--sources", "quora", "similarity", "--quora-share", "0.5", "--pooling", "mean")
    assert main(["pretrain", "--start", str(tiny_encoder), *common, *options, *SMALL]) == 0
    options = ("--tasks", "similarity", "--train-limit", "48")
    assert main(["finetune", "--start", str(only(folder, "pretrain")), *common, *options, *SMALL]) == 0
    return folder


def only(runs: Path, stage: str) -> Path:
    (folder,) = runs.glob(f"{stage}-*")
    return folder


def card_of(name: Path | str, normalize: bool = False, pooling: Pooling = "auto") -> str:
    encoder = SentenceEncoder.load(name, pooling=pooling, device="cpu", precision="fp32")
    return model_card(str(name), None, encoder, normalize)


def section(card: str, title: str) -> str:
    return card.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(text: str) -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in row] for row in rows[2:]]


def relabelled(runs: Path, stage: str, start: str, folder: Path) -> Path:
    """A copy of the runs, of which one names other start weights."""
    copy = only(shutil.copytree(runs, folder), stage)
    inputs = read_json(copy / "inputs.json")
    inputs["labels"]["start"] = start
    write_json(copy / "inputs.json", inputs)
    Run(copy).finish()
    return copy


def test_data_and_recipe_are_those_of_the_whole_chain(runs, tiny_encoder, small_data):
    chain = only(runs, "pretrain"), only(runs, "finetune")
    card = card_of(chain[1])
    expected = [
        [run.name, use, name, fingerprint[:16]]
        for run in chain
        for use in ("training", "dev")
        for name, fingerprint in read_json(run / "inputs.json")[use].items()
    ]
    assert len(expected) == 5
    assert table(section(card, "Training data")) == expected
    recipe = section(card, "Recipe")
    configs = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", recipe, re.DOTALL)]
    assert configs == [read_json(run / "config.json") for run in chain]
    weights = f" (weights `{sha256_of_file(tiny_encoder / 'model.safetensors')[:16]}`)"
    assert f"1. `{chain[0].name}`: pretrain from {tiny_encoder.name}{weights}\n" in recipe
    assert f"2. `{chain[1].name}`: finetune from {chain[0].name}\n" in recipe  # a run's key says more
    assert sha256_of_file(Run(chain[1]).model_folder() / "model.safetensors") in recipe
    assert str(tiny_encoder.parent) not in card  # no local folder gets out
    assert str(runs) not in card
    limits = section(card, "Limits")
    for run, limit in zip(chain, ("quora_share 0.5", "train_limit 48"), strict=True):
        assert f"{run.name} was trained on a part of its data: {limit}." in limits


def test_a_student_names_its_teachers_and_only_its_own_start_weights(runs, tiny_encoder, small_data, tmp_path):
    teacher, start = only(runs, "finetune"), shutil.copytree(tiny_encoder, tmp_path / "start weights")
    common = ("--data", str(small_data), "--runs", str(tmp_path), "--tasks", "similarity")
    options = ("--teacher", str(teacher), "--unlabelled", "quora")
    assert main(["distil", "--start", str(start), *common, *options, *SMALL]) == 0
    student = only(tmp_path, "distil")
    card = card_of(student)
    weights = f" (weights `{sha256_of_file(start / 'model.safetensors')[:16]}`)"
    assert f"3. `{student.name}`: distil from start weights{weights}, taught by {teacher.name}\n" in card
    assert "Start weights: start weights." in card
    uses = [row[1:3] for row in table(section(card, "Training data")) if row[0] == student.name]
    assert uses == [["training", "similarity"], ["unlabelled", "quora"], ["dev", "similarity"]]


def test_results_are_what_the_kept_state_scored(runs):
    for run, of in ((only(runs, "pretrain"), "the embeddings"), (only(runs, "finetune"), "a head that is not in this")):
        step = int(Run(run).model_folder().name.removeprefix("step-"))
        (line,) = (line for line in Run(run).history() if line["step"] == step)
        card = card_of(run)
        rows = table(section(card, "Results"))
        measured = line["dev"]["similarity"].items()
        expected = {name: value for name, value in measured if name not in ("alignment", "uniformity")}
        assert [row[:4] for row in rows] == [["dev", "similarity", k, f"{v:.4f}"] for k, v in expected.items()]
        assert all(row[4].startswith(of) for row in rows)
        front = ModelCard(card).data  # only scores of embeddings, which are exported
        found = {result.metric_type: result.metric_value for result in front.eval_results or []}
        assert found == (pytest.approx(expected) if of == "the embeddings" else {})
        # A local folder is no base model on the hub, and nobody said in which language the texts are.
        assert not {"base_model", "language"} & front.to_dict().keys()


def test_scores_on_held_out_rows_are_not_called_dev_scores(tiny_encoder, small_data, tmp_path):
    common = ("--data", str(small_data), "--runs", str(tmp_path), "--tasks", "similarity", "--held-out", "0.5")
    assert main(["finetune", "--start", str(tiny_encoder), *common, *SMALL]) == 0
    card = card_of(only(tmp_path, "finetune"))
    assert {row[0] for row in table(section(card, "Results"))} == {"held-out training rows"}
    assert [row[1] for row in table(section(card, "Training data"))] == ["training"]
    assert "the best of several on held-out training rows, so" in section(card, "Limits")
    assert "dev set" not in card


def pooled(pooling: str) -> dict[str, Any]:
    return {"settings": {"pooling": pooling}}


def test_results_of_suites_stand_beside_unless_they_are_of_another_pooling(runs, tmp_path, caplog):
    folder = shutil.copytree(Run(only(runs, "finetune")).model_folder(), tmp_path / "model")
    similarity = {"all": {"spearman": 0.75, "pearson": 0.5}, "mean": {"spearman": 0.1, "pearson": 0.1}}
    scores = {"sts": ("STS12", similarity), "transfer": ("MR", {"accuracy": 0.875, "f1": None})}
    for suite, (task, values) in scores.items():
        result = {task: {"rows": 3108, "rows_seen": 12, "scores": values}}
        write_json(folder / f"evaluation-{suite}.json", {"suite": suite, "tasks": result, **pooled("mean")})
    own = {"faq": {"rows": 20, "rows_seen": 0, "scores": {"ndcg": 0.5, "mrr": 0.25}}}
    write_json(folder / "evaluation-retrieval-faq-test.json", {"suite": "retrieval", "tasks": own, **pooled("mean")})
    write_json(folder / "evaluation-retrieval-faq-dev.json", {"suite": "retrieval", "tasks": own, **pooled("cls")})
    write_json(folder / "evaluation.json", {"accuracy": 0.5})  # of somebody else
    card = card_of(folder)
    assert table(section(card, "Results")) == [
        ["sts", "STS12", "spearman", "0.7500", "the embeddings", "12 of 3,108"],
        ["transfer", "MR", "accuracy", "0.8750", "the embeddings", "12 of 3,108"],
        ["retrieval-faq-test", "faq", "ndcg", "0.5000", "the embeddings", "0 of 20"],
    ]
    assert [(result.dataset_name, result.task_type) for result in ModelCard(card).data.eval_results] == [
        ("STS12", "semantic-similarity"),
        ("MR", "text-classification"),
        ("faq", "text-retrieval"),
    ]
    left_out = "not in the model card: its scores are those of {} pooling, not of {}"
    assert caplog.messages == [f"{folder / 'evaluation-retrieval-faq-dev.json'}: {left_out.format('cls', 'mean')}"]
    run = only(runs, "pretrain")
    assert "No scores were measured." in section(card_of(run, pooling="cls"), "Results")
    assert caplog.messages[1:] == [f"{run}: {left_out.format('mean', 'cls')}"]


def test_a_state_that_a_retrieval_set_selected_has_scores_of_retrieval(runs, tmp_path):
    copy = relabelled(runs, "pretrain", "start", tmp_path / "moved")
    lines = [json.loads(line) for line in (copy / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    searched = [line | {"dev": {"retrieval": {"ndcg": 0.5, "mrr": 0.25}}} for line in lines]
    for of, metrics in (("semantic-similarity", lines), ("text-retrieval", searched)):
        (copy / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in metrics), encoding="utf-8")
        Run(copy).finish()
        assert {result.task_type for result in ModelCard(card_of(copy)).data.eval_results} == {of}


def test_classifiers_of_unscaled_embeddings_are_no_scores_of_an_export_that_scales(runs, tmp_path, caplog):
    """Cosines do not change with the embeddings' lengths, but a classifier's features do."""
    folder = shutil.copytree(Run(only(runs, "finetune")).model_folder(), tmp_path / "model")
    for suite, scores in (("sts", {"all": {"spearman": 0.75}}), ("transfer", {"accuracy": 0.875})):
        result = {"MR": {"rows": 20, "rows_seen": 0, "scores": scores}}
        write_json(folder / f"evaluation-{suite}.json", {"suite": suite, "tasks": result, **pooled("mean")})
    for normalize, shown in ((False, ["sts", "transfer"]), (True, ["sts"])):
        assert not caplog.messages
        assert [row[0] for row in table(section(card_of(folder, normalize), "Results"))] == shown
    left_out = "not in the model card: its scores are those of embeddings that are not scaled to length 1"
    assert caplog.messages == [f"{folder / 'evaluation-transfer.json'}: {left_out}"]


def test_a_kept_model_has_the_card_of_its_run_and_moved_runs_are_found(runs, tmp_path):
    expected = card_of(only(runs, "finetune"))
    assert card_of(Run(only(runs, "finetune")).model_folder()) == expected
    moved = relabelled(runs, "finetune", f"/where/they/were/{only(runs, 'pretrain').name}", tmp_path / "moved")
    assert card_of(moved) == expected
    shutil.rmtree(only(moved.parent, "pretrain"))
    alone = card_of(moved)
    assert f"Start weights: {only(runs, 'pretrain').name}." in alone
    assert "base_model" not in ModelCard(alone).data.to_dict()
    assert len(re.findall("```json", alone)) == 1


@pytest.mark.parametrize(
    ("label", "base"),
    [("bert-base-uncased@v1", "bert-base-uncased"), ("someone/tiny", "someone/tiny"), ("/gone/tiny", None)],
)
def test_a_base_is_what_the_hub_has(runs, tmp_path, label, base):
    moved = relabelled(runs, "pretrain", label, tmp_path / "moved")
    assert ModelCard(card_of(moved)).data.to_dict().get("base_model") == base


def test_a_published_checkpoint_has_no_recipe_but_is_a_base():
    card = card_of(BUNDLED, normalize=True)
    assert ModelCard(card).data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert "The weights of all-minilm-l6-v2 are unchanged." in section(card, "Recipe")
    assert "embeddings of 384 numbers of length 1 from the mean of all tokens' states" in card
    assert "sentences of up to 256 tokens" in card
    assert "Quora" in section(card, "Limits")
    assert not table(section(card, "Results"))


def test_encoders_of_other_architectures_have_their_name(tiny_encoder):
    encoder = SentenceEncoder.load(tiny_encoder, device="cpu", precision="fp32")
    encoder.model.config = TransformersConfig("distilbert", 32, 6, 600, 64)
    assert "A sentence encoder: distilbert with 6 layers of width 32" in model_card(
        str(tiny_encoder), None, encoder, False
    )


def test_names_of_folders_are_text(tiny_encoder, tmp_path):
    folder = Path(shutil.copytree(tiny_encoder, tmp_path / "model\n# Heading\n<b>`x`"))
    text = card_of(folder).split("---\n", 2)[2]
    assert "\n# Heading" not in text
    assert "<b>" not in text
    assert text.lstrip().startswith("# model \\# Heading \\<b\\>\\`x\\`\n")


def test_names_in_the_records_of_a_run_are_text(runs, tmp_path):
    copy = relabelled(runs, "pretrain", "start", tmp_path / "moved")
    metrics = (copy / "metrics.jsonl").read_text(encoding="utf-8")
    (copy / "metrics.jsonl").write_text(metrics.replace("similarity", "`<img src=x>|"), encoding="utf-8")
    inputs = read_json(copy / "inputs.json")
    inputs["training"] = {"<b>": "`<b>`" * 9}
    write_json(copy / "inputs.json", inputs)
    Run(copy).finish()
    text = card_of(copy).split("---\n", 2)[2]
    assert "| \\`\\<img src=x\\>\\| | " in section(text, "Results")
    assert "| \\<b\\> | `'<b>''<b>''<b>''` |\n" in section(text, "Training data")
    assert {"<details>", "<summary>"} >= {*re.findall(r"(?<![\\'])<\w.*?>", text)}
