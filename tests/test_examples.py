"""The examples run and do what their texts say; the sample's files are well-formed, and no split leaks."""

import csv
import math
import re
import shutil
from types import ModuleType

import numpy as np
import pytest
import torch

from multitask.objectives import OBJECTIVES, build_objective
from multitask.training.schedulers import SCHEDULERS
from tests.conftest import ROOT

NAMES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


@pytest.fixture
def example(monkeypatch):
    """Imports an example as its script would run, from the checkout."""
    monkeypatch.chdir(ROOT)

    def load(name: str) -> ModuleType:
        module = ModuleType(name)
        exec(compile((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8"), name, "exec"), module.__dict__)
        return module

    yield load
    OBJECTIVES.pop("softplus_mean", None)
    SCHEDULERS.pop("easy_first", None)


def test_the_page_lists_every_example_of_at_most_80_lines():
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"({name}.py)" in page
        lines = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()
        assert sum(map(bool, lines)) <= 80


def test_the_course_training_loop_learns_the_rows_that_it_repeats(example, small_data, one_layer, capsys):
    loop = example("course_training_loop")
    loop.main(small_data, str(one_layer), steps=2, batch=4)
    assert re.search(r"dev: sentiment [\d.]+, paraphrase [\d.]+, similarity -?[\d.]+$", capsys.readouterr().out)
    torch.manual_seed(0)
    model = loop.MultitaskBert(str(one_layer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for task in loop.TASKS:
        texts, labels = loop.read(small_data, task, "train")
        few, labels = [column[:8] for column in texts], labels[:8]
        first = loop.TASKS[task][-1](model(task, few), labels).item()
        for _ in range(25):
            optimizer.zero_grad()
            loss = loop.TASKS[task][-1](model(task, few), labels)
            loss.backward()
            optimizer.step()
        assert loss.item() < first / 2, task
    texts, labels = loop.read(small_data, "similarity", "dev")
    with torch.no_grad():
        predicted = model("similarity", texts).numpy()
    assert math.isclose(
        loop.score(model, "similarity", texts, labels), np.corrcoef(predicted, labels)[0, 1], abs_tol=1e-5
    )


def test_the_own_loss_is_the_mean_over_all_negatives_and_trains(example, small_data, one_layer, tmp_path):
    module = example("own_loss")
    u, v = torch.nn.functional.normalize(torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0)), dim=2)
    cosine = (u @ v.T).tolist()
    terms = [math.log1p(math.exp((cosine[i][j] - cosine[i][i]) / 0.1)) for i in range(4) for j in range(4) if i != j]
    assert math.isclose(build_objective("softplus_mean")(u, v).item(), sum(terms) / 12, rel_tol=1e-5)
    data = shutil.copytree(small_data, tmp_path / "data")
    (data / "sentences.txt").write_text("".join(f"the film {i} is good\n" for i in range(16)), encoding="utf-8")
    scores = module.main(data, str(one_layer), tmp_path, rows=16)
    assert all(-1 <= value <= 1 for value in scores.values())
    assert len({*scores.values()}) == 2


def test_the_own_scheduler_trains_the_first_task_before_the_others(example, small_data, one_layer, tmp_path):
    module = example("own_scheduler")
    batches = {name: [np.array([0]), np.array([1])] for name in ("a", "b", "c")}
    updates = module.EasyFirst.arrange(None, batches, np.random.default_rng(0))
    assert [(batch.source, *batch.rows) for (batch,) in updates] == [
        *(("a", 0), ("a", 1)),
        *(("b", 0), ("c", 0), ("b", 1), ("c", 1)),
    ]
    assert {*module.main(small_data, str(one_layer), tmp_path, rows=16)} == {"average", "easy_first"}


def test_the_nearest_text_of_a_text_is_itself(example, one_layer, tmp_path):
    file = tmp_path / "texts.txt"
    texts = ["the film is good", "\n", "how do i cook rice", "a dog runs in the park"]
    file.write_text("\n".join(texts), encoding="utf-8")
    nearest = example("search_own_texts").main(file, (texts[2], texts[3]), str(one_layer))
    assert [row[0] for row in nearest] == texts[2:]
    assert all(len(row) == 3 for row in nearest)


def test_optunas_best_settings_are_trained_on_all_rows(example, one_layer, tmp_path):
    pytest.importorskip("optuna")
    score = example("settings_with_optuna").main(str(one_layer), tmp_path, trials=2, rows=16)
    assert 0 <= score <= 1
    assert len([*tmp_path.glob("finetune-trial-*")]) == 2
    assert len([*tmp_path.glob("finetune-best-*")]) == 1


# The bundled sample data: its files are well-formed, and no split leaks into another.


SAMPLE = ROOT / "data" / "sample"
SPLITS = ("train", "dev", "test-student")
ROWS = {"ids-sst": (1200, 300, 300), "quora": (1500, 350, 350), "sts": (1000, 250, 250), "ids-cfimdb": (160, 60, 60)}
LABEL = {"ids-sst": "sentiment", "quora": "is_duplicate", "sts": "similarity", "ids-cfimdb": "sentiment"}


def read(name: str, delimiter: str = "\t") -> list[dict[str, str]]:
    with (SAMPLE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def sentences(stem: str, split: str) -> set[str]:
    rows = read(f"{stem}-{split}.csv")
    return {text for row in rows for column, text in row.items() if column.startswith("sentence")}


@pytest.mark.parametrize("stem", ROWS)
def test_rows_ids_and_columns(stem):
    for split, count in zip(SPLITS, ROWS[stem], strict=True):
        rows = read(f"{stem}-{split}.csv")
        assert len(rows) == len({row["id"] for row in rows}) == count
        assert (LABEL[stem] in rows[0]) == (split != "test-student")
        assert all(len(row["id"]) == 25 and int(row["id"], 16) >= 0 for row in rows)
        assert all(value.strip() == value != "" for row in rows for value in row.values())


@pytest.mark.parametrize("stem", ROWS)
def test_no_sentence_is_in_two_splits(stem):
    splits = [sentences(stem, split) for split in SPLITS]
    assert len(set().union(*splits)) == sum(map(len, splits))


def test_pretraining_texts_have_no_evaluation_sentence():
    evaluation = set().union(*(sentences(stem, split) for stem in ROWS for split in SPLITS[1:]))
    triplets = read("nli_triplets.csv", delimiter=",")
    assert all(set(row) == {"sent0", "sent1", "hard_neg"} and len(set(row.values())) == 3 for row in triplets)
    assert not evaluation & {text for row in triplets for text in row.values()}
    for name, count in (("sentences", 3200), ("captions", 1000), ("news", 1000)):
        lines = (SAMPLE / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        assert len(lines) == len(set(lines)) == count
        assert not evaluation & set(lines)
