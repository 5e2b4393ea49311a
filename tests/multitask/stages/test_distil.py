"""Distillation: what teachers say of which rows, the loss against slow loops, and what a student learns from it."""

import shutil
from dataclasses import replace
from itertools import chain, compress
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax, softmax

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.model import BertModel
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.data.contamination import TrainedOn
from multitask.data.examples import drawn_rows
from multitask.models.estimates import load_split, raw_outputs
from multitask.models.multitask_model import MultitaskModel
from multitask.models.settings import HeadsConfig
from multitask.stages.distil import check_same_task, distil, mined_pairs
from multitask.stages.finetune import finetune
from multitask.stages.settings import DistilConfig, FinetuneConfig, TeachingConfig
from multitask.tasks.declarations import COURSE, load_tasks
from multitask.training.settings import OptimizerConfig, SchedulerConfig
from multitask.training.source import Batch, Trainable
from tests.conftest import task_file
from tests.multitask.declared import tasks_file
from tests.multitask.stages.conftest import weights

TASKS = ("sentiment", "paraphrase", "similarity")
FAST = OptimizerConfig(learning_rate=1e-3)
PLAIN = HeadsConfig("separate", pairs="features", similarity_pairs="embeddings", dropout=0.0)
CONFIG = DistilConfig(("sentiment", "similarity"), epochs=1, pooling="mean", heads=PLAIN, optimizer=FAST)


@pytest.fixture(scope="module")
def joint(data, tiny_encoder, shared_runs) -> Run:
    """A teacher of three tasks that reads pairs jointly."""
    config = FinetuneConfig(TASKS, epochs=1, heads=HeadsConfig("separate", pairs="joint"), optimizer=FAST, seed=3)
    return finetune(str(tiny_encoder), data, config, RunOptions(device="cpu", precision="fp32", runs=shared_runs))


@pytest.fixture
def distilling(problem, tiny_encoder):
    """What the stage hands to the training loop, with these teachers."""
    return lambda config, *teachers: problem(distil, config, start=[tiny_encoder, *(run.folder for run in teachers)])


def said(run: Run, data: Path, task: str, split: str = "train") -> np.ndarray:
    """A model's raw outputs for the rows of a file, [rows, ...]."""
    model = MultitaskModel.load(run.folder, "cpu", "fp32", keep_layers=True)
    return raw_outputs(model, task, load_split(model, data, split, [task], labelled=True)[task])


# What is learned.


def test_estimates_are_the_mean_of_the_tempered_probabilities_of_teachers_that_have_the_task(
    distilling, tuned, joint, data
):
    config = replace(CONFIG, tasks=TASKS, train_limit=20, teaching=TeachingConfig(temperature=3.0))
    found = distilling(config, tuned, joint)
    rows = drawn_rows(64, 20)
    both = {task: [said(run, data, task)[rows] for run in (tuned, joint)] for task in ("sentiment", "similarity")}
    expected = {
        "sentiment": np.mean([softmax(raw / 3, axis=1) for raw in both["sentiment"]], axis=0),
        "similarity": np.mean(np.clip(both["similarity"], 0, 1), axis=0),
        "paraphrase": expit(said(joint, data, "paraphrase")[rows] / 3),  # the other teacher lacks this task
    }
    for task in TASKS:
        np.testing.assert_allclose(found.sources[task].estimates, expected[task], atol=1e-6)


@pytest.mark.parametrize(("long", "text"), [("middle", "one"), ("windows", "one"), ("middle", "a good band and {one}")])
def test_teachers_read_texts_as_their_own_training_did(run_stage, problem, tiny_encoder, tmp_path, long, text):
    """The student reads beginnings, which are equal."""
    texts = ["time " * 40 + word for word in ("good", "band") * 4]
    columns, own = {"one": texts, "label": ["good", "band"] * 4}, {"kind": "classification", "label": "label"}
    config = replace(CONFIG, tasks=(), max_length=16, teaching=TeachingConfig(temperature=1.0))
    taught = FinetuneConfig((), epochs=1, max_length=16, heads=PLAIN, optimizer=FAST)
    teacher = run_stage(finetune, taught, data=tasks_file(tmp_path, columns, own={**own, "text": text, "long": long}))
    data = tasks_file(tmp_path, columns, own={**own, "text": "one"})
    found = problem(distil, config, start=[tiny_encoder, teacher.folder], data=data)
    predicted = MultitaskModel.load(teacher.folder, "cpu", "fp32").predict("own", texts)
    expected = [[*prediction.probabilities.values()] for prediction in predicted]
    assert expected[0] != expected[1]
    np.testing.assert_allclose(found.sources["own"].estimates, expected, atol=1e-6)


def test_unlabelled_rows_go_to_the_tasks_that_read_such_rows(distilling, joint, data):
    config = replace(CONFIG, tasks=TASKS, train_limit=10)
    config = replace(config, teaching=TeachingConfig(unlabelled=("unlabelled", "pairs"), unlabelled_limit=7))
    found = distilling(config, joint)
    lines = (data / "sentences.txt").read_text(encoding="utf-8").splitlines()
    examples = {name: split.examples for name, split in found.training.items()}
    assert examples["sentiment"].sentences[0][10:] == lines[:7]
    pairs = [line.split("\t") for line in (data / "positive_pairs.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    pairs = [tuple(pairs[row]) for row in drawn_rows(len(pairs), 7)]
    for name in ("paraphrase", "similarity"):
        assert [*zip(*examples[name].sentences, strict=True)][10:] == pairs
    for name in TASKS:
        assert np.isnan(examples[name].gold).tolist() == [False] * 10 + [True] * 7
        rows = chain.from_iterable(batch.rows for update in found.plan(0) for batch in update if batch.source == name)
        assert sorted(rows) == list(range(17))


def test_mined_pairs_are_nearest_neighbours_without_gold_pairs(tuned, data):
    model = MultitaskModel.load(tuned.folder, "cpu", "fp32", keep_layers=True)
    examples = load_split(model, data, "dev", ["similarity"])["similarity"].examples
    texts = list(dict.fromkeys(chain(*examples.sentences)))
    with torch.no_grad():
        embedded = torch.cat(
            [model.encoder.embed(model.encoder.tokenizer.encode([text], model.encoder.max_length)) for text in texts]
        )
    cosines = torch.nn.functional.cosine_similarity(embedded[:, None], embedded[None], dim=2)
    expected, gold = set(), {frozenset(pair) for pair in zip(*examples.sentences, strict=True)}
    for row, values in enumerate(cosines):
        nearest = [place for place in values.argsort(descending=True).tolist() if place != row][:2]
        expected |= {frozenset((texts[row], texts[place])) for place in nearest} - gold
    found = [frozenset(pair) for pair in zip(*mined_pairs(model.encoder, examples, 2), strict=True)]
    assert len(found) == len(set(found)) > 30
    assert set(found) == expected


@pytest.mark.parametrize(
    ("task", "teaching"),
    [
        ("similarity", TeachingConfig(mine_pairs=1)),
        ("similarity", TeachingConfig(("pairs",))),
        ("sentiment", TeachingConfig(("unlabelled",))),
    ],
)
def test_further_rows_are_no_rows_of_the_dev_or_test_set(task, teaching, problem, tuned, tiny_encoder, data, tmp_path):
    config = replace(CONFIG, tasks=(task,), teaching=teaching)

    def further(folder: Path) -> list[tuple[str, ...]]:
        found = problem(distil, config, start=[tiny_encoder, tuned.folder], data=folder)
        examples = found.training[task].examples
        return list(compress(zip(*examples.sentences, strict=True), np.isnan(examples.gold)))

    before = further(data)
    folder = Path(shutil.copytree(data, tmp_path / "data"))
    for (first, *second), split, label in zip(before, ("dev", "test"), ("\t1", ""), strict=False):
        with task_file(folder, task, split).open("a", encoding="utf-8") as file:
            file.write("\t".join(["9", "new", *map(str.upper, second), first]) + f"{label}\n")
    assert further(folder) == before[2:]


# The loss.


@pytest.mark.parametrize(("kind", "share"), [("cosine", 0.3), ("mse", 0.3), ("mse", 1.0)])
def test_the_loss_is_that_of_a_slow_loop(kind, share, distilling, tuned):
    soft = TeachingConfig(("unlabelled",), gold_share=share, embedding_loss=kind, embedding_weight=0.7)
    found = distilling(replace(CONFIG, tasks=("sentiment",), teaching=soft), tuned)
    rows = np.array([3, 70, 11, 64])  # two of the 64 rows with gold labels, two without
    losses = found.losses((Batch("sentiment", rows),))
    teacher = MultitaskModel.load(tuned.folder, "cpu", "fp32", keep_layers=True)
    texts, labels = found.training["sentiment"].examples.sentences[0], found.training["sentiment"].examples.gold
    gold, softened, apart = 0.0, 0.0, 0.0
    for row in rows:
        with torch.no_grad():
            mine = found.model.encoder.embed(found.model.encoder.tokenizer.encode([texts[row]]))
            own = found.model.head("sentiment", mine)[0].double().numpy()
            theirs = teacher.encoder.embed(teacher.encoder.tokenizer.encode([texts[row]], 40))
            logits = teacher.head("sentiment", theirs)[0].double().numpy()
        softened += -4 * float(softmax(logits / 2) @ log_softmax(own / 2))
        gold += 0.0 if np.isnan(labels[row]) else -log_softmax(own)[int(labels[row])]
        difference = torch.nn.functional.mse_loss(mine, theirs)
        apart += float(difference if kind == "mse" else 1 - torch.nn.functional.cosine_similarity(mine, theirs))
    expected = (share * gold + (1 - share) * softened + 0.7 * apart) / 4
    assert losses.terms["sentiment"].item() == pytest.approx(expected, rel=1e-3)


def test_a_linear_layer_translates_between_widths(problem, one_layer, tmp_path, tuned):
    narrow = shutil.copytree(one_layer, tmp_path / "narrow")
    config = replace(BertConfig.from_file(narrow / "config.json"), hidden_size=16)
    BertModel(config).save(narrow)
    soft = TeachingConfig(embedding_loss="cosine")
    found = problem(distil, replace(CONFIG, teaching=soft), start=[narrow, tuned.folder])
    assert (found.module["projection"].in_features, found.module["projection"].out_features) == (16, 32)
    found.backward(found.plan(0)[0])
    assert found.module["projection"].weight.grad.abs().sum() > 0


def test_tasks_whose_embeddings_the_first_teacher_does_not_teach_are_named(problem, tuned, joint, tiny_encoder, caplog):
    config = replace(CONFIG, tasks=TASKS, teaching=TeachingConfig(embedding_loss="mse"))
    with caplog.at_level("INFO"):
        problem(distil, config, start=[tiny_encoder, tuned.folder, joint.folder])
    assert "embedding_loss: not of paraphrase, which the first teacher lacks or reads otherwise" in caplog.text


def test_a_teacher_that_has_none_of_the_tasks_is_named(distilling, tuned, joint, caplog):
    with caplog.at_level("INFO"):
        distilling(replace(CONFIG, tasks=("paraphrase",)), tuned, joint)
    assert f"{tuned.folder}: has none of the tasks trained here (paraphrase); it teaches nothing" in caplog.messages
    said = [line for line in caplog.messages if line.startswith("predictions of ") or "none of the tasks" in line]
    assert said[1:] == [f"predictions of {joint.folder}"]


def test_a_teacher_of_embeddings_alone_may_have_other_labels(problem, run_stage, tiny_encoder, tmp_path, caplog):
    """With `gold_share` 1 its answers are not used."""
    texts = [f"{word} {'time ' * number}" for number in range(3) for word in ("good", "band", "bad")]
    columns = {"one": [text.strip() for text in texts], "label": ["a", "b", "c"] * 3}
    declared = {"kind": "classification", "text": "one", "label": "label"}
    taught = FinetuneConfig((), epochs=1, heads=PLAIN, optimizer=FAST)
    teacher = run_stage(finetune, taught, data=tasks_file(tmp_path, columns, own=declared))
    columns["label"] = ["a", "b", "b"] * 3
    data = tasks_file(tmp_path, columns, own=declared)

    def distilling(share: float) -> Trainable:
        config = replace(CONFIG, tasks=(), teaching=TeachingConfig(gold_share=share, embedding_loss="cosine"))
        return problem(distil, config, start=[tiny_encoder, teacher.folder], data=data)

    with pytest.raises(InputError, match="labels are a, b; the model has a, b, c"):
        distilling(0.9)
    model = MultitaskModel.load(teacher.folder, "cpu", "fp32", keep_layers=True)
    embedded = model.encoder.encode(columns["one"])
    with caplog.at_level("INFO"):
        np.testing.assert_allclose(distilling(1.0).sources["own"].embeddings[:, 0], embedded, atol=1e-3)
    assert f"embeddings of {teacher.folder}" in caplog.messages


def test_tasks_that_no_step_trains_are_named_as_they_are_drawn_with_further_rows(
    problem, run_stage, tiny_encoder, tmp_path, caplog
):
    """A label without a trained row is nothing to warn of: a teacher may know it."""
    texts = [f"{word} {'time ' * number}".strip() for number in range(10) for word in ("good", "band", "bad", "a")]
    columns = {"one": texts, "two": texts[::-1], "label": ["a", "b", "c", "d"] * 10}
    few = {"kind": "classification", "text": "one", "label": "label", "train": "few.csv"}
    many = {"kind": "pair_classification", "text": ["one", "two"], "label": "label"}
    data = tasks_file(tmp_path, columns, few=few, many=many)
    (tmp_path / "few.csv").write_text(
        "one,label\n" + "".join(f"{text},{'abcd'[i % 4]}\n" for i, text in enumerate(texts[:8]))
    )
    (tmp_path / "more.txt").write_text("".join(f"{text} good\n" for text in texts * 3))
    teacher = run_stage(finetune, FinetuneConfig((), epochs=1, heads=PLAIN, optimizer=FAST), data=data)
    config = replace(CONFIG, tasks=(), scheduler=SchedulerConfig.parse("proportional:alpha=10"), epoch_size=1)
    config = replace(config, train_limit=60)  # of labelled rows, as some further ones are trained
    for unlabelled, idle in (((), "few"), (("more.txt",), "many")):
        caplog.clear()
        changed = replace(config, teaching=TeachingConfig(unlabelled))
        found = problem(distil, changed, start=[tiny_encoder, teacher.folder], data=data)
        assert {batch.source for update in found.plan(0) for batch in update} == {"few", "many"} - {idle}
        [line] = [line for line in caplog.messages if line.startswith("no step")]
        assert line.startswith(f"no step trains {idle}, as proportional:alpha=10 draws none of its rows")
        assert "no trained row" not in caplog.text


def test_gold_labels_alone_are_fine_tuning(run_stage, tuned, tiny_encoder, caplog):
    config = replace(CONFIG, matryoshka=(32, 8), teaching=TeachingConfig(gold_share=1.0))
    with caplog.at_level("INFO"):
        student = run_stage(distil, config, start=[tiny_encoder, tuned.folder])
    assert f" of {tuned.folder}" not in caplog.text  # it is not read
    names = ("tasks", "epochs", "pooling", "heads", "optimizer", "matryoshka")
    fields = {name: getattr(config, name) for name in names}
    alone = run_stage(finetune, FinetuneConfig(**fields))
    assert weights(student) == weights(alone)


# The run.


def test_what_its_teachers_were_trained_on_counts_as_a_students_training_data(run_stage, joint, tiny_encoder):
    student = run_stage(distil, replace(CONFIG, tasks=("paraphrase",)), start=[tiny_encoder, joint.folder])
    seen, taught = TrainedOn.of_folder(student.folder, ""), TrainedOn.of_folder(joint.folder, "")
    assert np.isin(taught.sentences, seen.sentences).all()  # also those of tasks that the student does not learn
    assert np.isin(taught.pairs, seen.pairs).all()


def test_teachers_that_do_not_fit(run_stage, tuned, joint, tiny_encoder):
    def refused(message: str, config: DistilConfig = CONFIG, *teachers: Run) -> None:
        with pytest.raises(InputError, match=message):
            run_stage(distil, config, start=[tiny_encoder, *(run.folder for run in teachers)], folder="refused")

    refused("distillation without a teacher")
    frozen = replace(CONFIG, freeze="encoder", teaching=TeachingConfig(embedding_loss="mse"))
    refused("embedding_loss has no effect on a frozen encoder; leave it out", frozen, tuned)
    refused("no teacher has the task paraphrase", replace(CONFIG, tasks=TASKS), tuned)
    joint_only = replace(CONFIG, tasks=("paraphrase",), teaching=TeachingConfig(embedding_loss="mse"))
    refused("embedding_loss: student and first teacher read no task", joint_only, joint)


def test_a_teacher_of_order_does_not_teach_values_nor_the_reverse():
    values = load_tasks(COURSE)["similarity"]
    order = replace(values, objective="cosent")
    check_same_task("teacher", order, order)
    for teacher, student in ((order, values), (values, order)):
        with pytest.raises(InputError, match=r"^teacher: similarity learns only order with cosent"):
            check_same_task("teacher", teacher, student)
