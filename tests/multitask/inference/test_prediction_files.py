"""Prediction files of declared tasks' dev and test sets."""

from pathlib import Path

from multitask.inference.prediction_files import write_prediction_files
from multitask.models.multitask_model import MultitaskModel
from tests.multitask.declared import model_of_every_kind


def declaration(name: str, kind: str, label: str, more: str = "") -> str:
    return (
        f'[tasks.{name}]\nkind = "{kind}"\ntext = "question"\nlabel = "{label}"\ntrain = "x.csv"\ndev = "x.csv"\n{more}'
    )


def test_a_task_without_a_test_set_has_a_file_for_its_dev_set_only(tiny_encoder: Path, tmp_path: Path) -> None:
    whole = model_of_every_kind(tiny_encoder)
    tasks = {name: whole.tasks[name] for name in ("topic", "stars")}
    model = MultitaskModel(whole.encoder, whole.tokenizer, tasks, "mean", whole.heads_config)
    model.save(tmp_path / "model")
    (tmp_path / "x.csv").write_text("question,type,stars\nWho?,ABBR,3\nWhy?,DESC,5\n")
    topic = declaration("topic", "classification", "type")
    stars = declaration("stars", "regression", "stars", 'range = [1, 5]\ntest = "x.csv"\n')
    for text, names in (
        (topic + stars, ["topic-dev", "stars-dev", "stars-test"]),
        (topic + stars.replace('test = "x.csv"', ""), ["topic-dev", "stars-dev"]),
    ):
        (tmp_path / "tasks.toml").write_text(text)
        found = write_prediction_files(tmp_path / "model", tmp_path / "tasks.toml", tmp_path / "out", device="cpu")
        assert [path.name for path in found] == [f"{name}-output.csv" for name in names]
