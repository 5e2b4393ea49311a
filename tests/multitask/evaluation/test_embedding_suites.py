"""Suites: scores equal scipy's; missing sets, rows that were trained on, and the command."""

import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from minbert.errors import InputError
from multitask.cli.main import main
from multitask.data.contamination import TrainedOn, hash_sentences
from multitask.data.examples import Examples
from multitask.evaluation import transfer_scores as transfer
from multitask.evaluation.suite_pages import suite_text
from multitask.evaluation.suite_sets import SETS
from multitask.evaluation.suites import evaluate_suites
from multitask.evaluation.task_scores import TaskEvaluation
from multitask.evaluation.training_overlap import ScoresWithOverlap
from multitask.models.sentence_encoder import load_encoder
from multitask.tasks.declarations import task_of
from tests.multitask.evaluation.folder import BagOfWords, write_retrieval, write_sts, write_transfer

SHARED = Path(os.environ.get("MINBERT_SHARED_DATA", "missing")) / "senteval"
STSB = SETS["sts"][5]
DEVICE = ("--device", "cpu", "--precision", "fp32")
EXACT = {"pooling": "mean", "device": "cpu", "precision": "fp32"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("senteval")
    write_sts(folder)
    write_transfer(folder)
    return folder


def evaluate(suite, folder, trained_on=None, encoder=None):
    encoder = encoder or BagOfWords()
    if trained_on is not None:
        encoder.trained_on = lambda _name: trained_on
    return evaluate_suites([suite], encoder, "bag", folder)[suite]


def keep_only(folder: Path, *kept: str) -> None:
    """Remove a file of every other set."""
    for entry in (*SETS["sts"], *SETS["transfer"]):
        if entry.name not in kept:
            entry.paths(folder)[0].unlink(missing_ok=True)


def trained_on_pairs(first, second):
    return TrainedOn.of_rows([hash_sentences(first), hash_sentences(second)])


def spearman(encoder, data, rows):
    first, second = (encoder.encode(list(np.array(column)[rows])).astype(np.float64) for column in data.columns)
    cosine = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    return spearmanr(cosine, data.labels[rows]).statistic


def test_every_task_has_the_score_that_scipy_gives_and_embeds_a_sentence_once(folder):
    encoder = BagOfWords()
    result = evaluate("sts", folder, encoder=encoder)
    assert list(result.tasks) == [entry.name for entry in SETS["sts"]]
    scores, texts = [], set()
    for entry in SETS["sts"]:
        data = entry.read(entry.paths(folder))
        texts |= {*data.sentences}
        scores.append(spearman(BagOfWords(), data, np.ones(len(data.labels), bool)))
        assert result.main(result.tasks[entry.name].scores) == pytest.approx(scores[-1], abs=1e-9)
        assert result.tasks[entry.name].rows == len(data.labels)
    assert result.average() == pytest.approx(np.mean(scores), abs=1e-9)
    assert (result.missing, result.unknown) == ({}, ())
    assert sorted(encoder.asked) == sorted(texts)
    assert result.sentences == len(texts)


def test_each_size_has_the_scores_of_truncated_embeddings_from_one_pass(folder):
    encoder, cut = BagOfWords(), BagOfWords()
    cut.word = lambda text: BagOfWords().word(text)[:7]
    result = evaluate_suites(["sts"], encoder, "bag", folder, dimensions=[24, 7])["sts"]
    whole, part = evaluate("sts", folder), evaluate("sts", folder, encoder=cut)
    assert result.tasks == whole.tasks
    assert list(result.dimensions) == [7]  # 24 are all
    for name, task in part.tasks.items():
        assert result.main(result.dimensions[7].tasks[name].scores) == pytest.approx(part.main(task.scores), abs=1e-9)
    assert len(encoder.asked) == result.sentences + 1
    assert result.as_json()["dimensions"][7]["average"] == pytest.approx(part.average(), abs=1e-9)
    table = suite_text(result)
    assert table.index("bag  ") < table.index("bag, 7 dimensions")
    with pytest.raises(InputError, match="dimensions is 25; the embeddings of bag have 24"):
        evaluate_suites(["sts"], encoder, "bag", folder, dimensions=[25])


def test_suites_evaluated_together_have_their_own_scores(folder, monkeypatch):
    monkeypatch.setattr(transfer, "FOLDS", 3)
    monkeypatch.setattr(transfer, "GRID", (1.0,))
    monkeypatch.setattr(transfer, "TRAINING_SET_GRID", (1.0,))
    sts, learned, geometry = evaluate_suites(
        ["sts", "transfer", "geometry"], BagOfWords(), "bag", folder, with_geometry=True
    ).values()
    assert sts.tasks == evaluate("sts", folder).tasks
    assert sts.geometry == geometry.tasks["STSBenchmark"].scores
    assert list(sts.answers) == list(sts.tasks)
    assert list(learned.tasks) == list(learned.answers) == [entry.name for entry in SETS["transfer"]]
    assert [name for name, task in learned.tasks.items() if task.scores["f1"] is None] == ["TREC"]
    assert learned.average() > 0.7  # a word reveals the class of nine in ten sentences
    assert learned.geometry is geometry.average() is None
    assert all(task.scores["uniformity"] < 0 for task in geometry.tasks.values())


def test_missing_sets_are_named_and_skipped(tmp_path, caplog):
    write_sts(tmp_path)
    keep_only(tmp_path, "STS12", "STSBenchmark")
    with caplog.at_level(logging.WARNING, "multitask"):
        result = evaluate("sts", tmp_path)
    assert list(result.tasks) == ["STS12", "STSBenchmark"]
    assert result.missing["SICKRelatedness"] == str(tmp_path / "SICK/SICK_test_annotated.txt")
    assert len(result.missing) == 5
    assert "STS13 is left out" in caplog.text
    mains = [result.main(task.scores) for task in result.tasks.values()]
    assert result.average() == pytest.approx(np.mean(mains))


def test_embeddings_that_are_not_finite_are_refused(folder):
    encoder = BagOfWords()
    encoder.word = lambda text: np.full(encoder.dim, np.nan)
    with pytest.raises(InputError, match=r"^bag: the encoder's embeddings are not finite"):
        evaluate("sts", folder, encoder=encoder)


def test_a_folder_without_any_set_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no data set of --suite transfer is here; pass SentEval's data folder"):
        evaluate("transfer", tmp_path)


def test_pairs_that_were_trained_on_are_counted_and_left_out(folder):
    data = STSB.read(STSB.paths(folder))
    first, second = data.columns
    seen = np.arange(len(first)) % 3 == 0
    turned = trained_on_pairs(np.array(second)[seen].tolist(), np.array(first)[seen].tolist())  # in the other order
    result = evaluate("sts", folder, turned)
    task = result.tasks["STSBenchmark"]
    assert task.rows_seen == seen.sum() == 8
    assert result.main(task.clean) == pytest.approx(spearman(BagOfWords(), data, ~seen), abs=1e-9)
    assert result.tasks["SICKRelatedness"].rows_seen == 8  # the same pairs with exchanged sentences
    assert result.average(clean=True) == pytest.approx(np.mean([result.main(t.clean) for t in result.tasks.values()]))
    every = evaluate("sts", folder, trained_on_pairs(*data.columns))
    assert every.tasks["STSBenchmark"].clean is None
    assert every.average(clean=True) is None


def test_only_scored_sentences_count_as_seen_in_transfer_tasks(tmp_path):
    write_transfer(tmp_path)
    keep_only(tmp_path, "SST2")
    sst = SETS["transfer"][4]
    data = sst.read(sst.paths(tmp_path))
    (scored,) = data.scored_columns
    known = {*scored[:20], *np.array(data.columns[0])[data.parts == "train"]}
    task = evaluate("transfer", tmp_path, TrainedOn.of_rows([hash_sentences(known)])).tasks["SST2"]
    assert task.rows_seen == sum(text in known for text in scored)
    assert (task.sentences, task.sentences_seen) == (len(set(scored)), len(known & set(scored)))
    assert task.untouched is None


def test_rows_that_were_trained_on_are_not_scored():
    asked = []

    def scores_of(rows):
        asked.append(rows.tolist())
        return len(asked)

    columns = [["a", "b", "c", "d"], ["e", "b", "g", "h"]]
    result = ScoresWithOverlap.of(scores_of, columns, trained_on_pairs(["a", "g"], ["e", "other"]))
    assert asked == [[True] * 4, [False, True, True, True], [False, True, False, True]]
    assert (result.scores, result.clean, result.untouched) == (1, 2, 3)
    assert (result.sentences, result.sentences_seen, result.rows_seen) == (7, 3, 1)


def test_a_label_that_only_rows_of_the_training_have_is_named_with_the_most_that_is_left(caplog):
    """A model that is right on every row loses a third of its macro F1 on the rows that it was not trained on."""
    names = {"text": "text", "label": "about", "labels": ["sport", "politics", "weather"]}
    kinds = {"topic": "classification", "tags": "multilabel"}
    tasks = {name: task_of(name, {"kind": kind, **names}) for name, kind in kinds.items()}
    texts, gold = [f"a text of number {number}" for number in range(9)], np.arange(9) // 3
    labels = {"topic": gold.astype(np.float32), "tags": np.eye(3, dtype=np.float32)[gold]}
    examples = {name: Examples((texts,), found, (), None, "rows.csv") for name, found in labels.items()}
    estimates = dict.fromkeys(tasks, np.eye(3)[gold])
    known = {count: TrainedOn.of_rows([hash_sentences(texts[9 - count :])]) for count in (2, 3)}
    evaluations = {count: TaskEvaluation.of(tasks, estimates, examples, seen) for count, seen in known.items()}
    for name in tasks:
        assert [found.overlap[name].clean["macro_f1"] for found in evaluations.values()] == pytest.approx([1, 2 / 3])
    lacks = 'no row has the label "weather", whose F1 counts as 0: macro_f1 is at most 0.6667'
    assert caplog.messages == [f"{name}: rows.csv: of the 6 rows not trained on, {lacks}" for name in tasks]


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="MINBERT_SHARED_DATA does not name a folder with senteval")
def test_all_minilm_has_its_published_scores():
    """Spearman correlations of all pairs, which MTEB also computes."""
    result = evaluate_suites(["sts"], load_encoder("all-minilm-l6-v2", **EXACT), "all-minilm-l6-v2", SHARED)["sts"]
    found = {name: round(100 * result.main(task.scores), 2) for name, task in result.tasks.items()}
    assert {name: found[name] for name in ("STS12", "STS13", "STS15")} == {
        "STS12": 72.37,
        "STS13": 80.60,
        "STS15": 85.39,
    }


def test_a_hub_id_is_evaluated_and_known_in_the_revision_that_is_asked_for(hub, tiny_encoder, tmp_path):
    """The main branch does not exist, so that reading anything of it fails."""
    folder = shutil.copytree(tiny_encoder, tmp_path / "model")
    trained_on_pairs(["A gem."], ["A jewel."]).keep(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.repositories["someone/small"] = {"v1": files}
    found = load_encoder("someone/small", "v1", **EXACT)
    expected = load_encoder(str(folder), **EXACT)
    np.testing.assert_array_equal(found.encode(["A gem."]), expected.encode(["A gem."]))
    seen = found.trained_on("someone/small").sentences
    assert seen.tolist() == sorted(hash_sentences(["A gem.", "A jewel."]).tolist())


def test_a_retrieval_set_of_ones_own_is_evaluated_by_the_command(tiny_encoder, tmp_path, capsys):
    write_retrieval(tmp_path / "faq")
    model = shutil.copytree(tiny_encoder, tmp_path / "model")
    asked = ["evaluate", "--model", str(model), "--suite", "retrieval", "--data", str(tmp_path / "faq"), *DEVICE]
    assert main([*asked, "--dimensions", "8", "--output", str(tmp_path / "e.json")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-3:] == [str(tmp_path / f"e.{form}") for form in ("json", "md", "tex")]
    table = [line.split() for line in printed]
    assert ["Model", "faq", "Avg."] in table
    assert not any("BERT" in word for line in table for word in line)  # published scores are of other sets
    found = json.loads((tmp_path / "e.json").read_text())
    scores = found["tasks"]["faq"]["scores"]
    assert set(scores) == {"ndcg", "mrr", *(f"{name}@{k}" for name in ("ndcg", "mrr", "recall") for k in (1, 10, 100))}
    assert (found["tasks"]["faq"]["rows"], found["dimensions"].keys()) == (2, {"8"})
    assert scores["recall@10"] == 1.0  # of three documents
    encoder = load_encoder(tiny_encoder, **{**EXACT, "pooling": "auto"})
    unit = encoder.encode(["Cats a cat sleeps", "the dog runs", "", "who sleeps ?", "a dog"], normalize=True)
    first = [int((unit[:3] @ unit[query]).argmax()) in relevant for query, relevant in ((3, (0, 1)), (4, (1,)))]
    assert scores["mrr@1"] == pytest.approx(np.mean(first))
    assert main([*asked, "--split", "test"]) == 2
    assert "0 files qrels/test.*; expected a set as BEIR lays it out" in capsys.readouterr().err
    shutil.copy(tmp_path / "faq/qrels/dev.tsv", tmp_path / "faq/qrels/test.tsv")
    for split in ("dev", "test"):  # neither replaces the other, and each says which it is
        assert main([*asked, "--split", split]) == 0
        assert f"seed 0, split {split})" in capsys.readouterr().out
        assert json.loads((model / f"evaluation-retrieval-faq-{split}.json").read_text())["settings"]["split"] == split


def test_the_published_sets_are_no_set_of_ones_own(tmp_path):
    """Without a split, a corpus that lies in SentEval's folder changes nothing."""
    write_sts(tmp_path)
    write_retrieval(tmp_path)
    found = evaluate_suites(["retrieval"], BagOfWords(), "bag", tmp_path)["retrieval"]
    assert (found.tasks.keys(), "split" in found.settings) == ({"SICKRetrieval"}, False)
