"""Scripts that make data: further rows, larger dev sets, pairs by kind, pairs that no training has read."""

import csv
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from minbert.errors import InputError
from multitask.data.contamination import TrainedOn, normalised
from multitask.data.fetch import CHECKOUT_DATA
from multitask.evaluation.suite_sets import SETS
from multitask.models.multitask_model import MultitaskModel
from multitask.tasks.declarations import task_named
from multitask.tasks.read_examples import load_rows
from scripts import gpu_inputs, more_data
from scripts.larger_dev_sets import enlarge
from scripts.pairs_by_kind import KINDS, write
from scripts.unread_pairs import SHARES, compare, differences, pairs_of_tasks, scores
from studies.engine.presets import SMALL
from studies.sparse_cse.tables import WHOLE, pruned
from tests.multitask.declared import model_of_every_kind
from tests.multitask.evaluation.folder import write_sts


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file, delimiter="\t")]


@pytest.fixture
def add(small_data, tmp_path, monkeypatch) -> Callable[..., None]:
    """Runs `more_data` into the folder `out`."""

    def run(*options: object) -> None:
        arguments = [str(part) for part in (small_data, tmp_path / "out", *options)]
        monkeypatch.setattr(sys, "argv", ["more_data", *arguments])
        more_data.main()

    return run


def test_further_rows_are_added_but_for_those_of_dev_and_test_sets(add, small_data, tmp_path):
    dev = rows(small_data / "ids-sst-dev.csv")[0]["sentence"]
    first, pair = (rows(small_data / f"{name}-dev.csv")[0] for name in ("quora", "sts"))
    phrases = tmp_path / "phrases.tsv"
    phrases.write_text(f"phrase\tsentiment\nquite lovely indeed\t4\nQuite Lovely Indeed\t4\n{dev.upper()}\t1\n")
    pairs = tmp_path / "pairs.tsv"
    known = f"{first['sentence2'].upper()}\t{first['sentence1']}\t1\n"  # the pair in the other order
    pairs.write_text(f"sentence1\tsentence2\tis_duplicate\nhow do owls hear\thow can an owl hear\t1\n{known}")
    folder = tmp_path / "senteval" / "STS" / "STS12-en-test"
    folder.mkdir(parents=True)
    (folder / "STS.input.a.txt").write_text(
        f"a new pair\tof two texts\nno score\there\n{pair['sentence2']} too\t{pair['sentence1']}\n\t\n",
        encoding="utf-8",
    )
    (folder / "STS.gs.a.txt").write_text("2.5\n\n4.0\n\n")
    (folder / "STS.gs.ALL.txt").write_text("2.5\n")
    sick = tmp_path / "senteval" / "SICK"
    sick.mkdir()
    for name in more_data.SICK:
        text = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
        (sick / f"{name}.txt").write_text(text + f"1\tan owl in {name}\ta bird\t3\tNEUTRAL\n")
    add("--phrases", phrases, "--pairs", pairs, "--senteval", tmp_path / "senteval")

    sentiment = rows(tmp_path / "out" / "ids-sst-train.csv")
    sentences = [row["sentence"] for row in rows(small_data / "ids-sst-train.csv")]
    assert [row["sentence"] for row in sentiment] == [*sentences * 3, "Quite Lovely Indeed"]
    assert sentiment[-1]["sentiment"] == "4"
    assert [row["sentence1"] for row in rows(tmp_path / "out" / "quora-train.csv")][64:] == ["how do owls hear"]
    scored = rows(tmp_path / "out" / "sts-train.csv")[64:]
    assert [(row["sentence1"], row["similarity"]) for row in scored] == [
        ("a new pair", "2.5"),
        *((f"an owl in {name}", "2.5") for name in more_data.SICK),  # 3 of 1 to 5
    ]
    assert (tmp_path / "out" / "sts-dev.csv").read_bytes() == (small_data / "sts-dev.csv").read_bytes()


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("--pairs", 'sentence1\tsentence2\tis_duplicate\n"Hello\tyou\t1\nwhat\t"now\t0\n', "given.tsv:2: "),
        ("--pairs", "sentence1\tsentence2\nhello\tyou\n", "no column is_duplicate"),
        ("--phrases", "phrase\tsentiment\nlovely\t9\n", "given.tsv:2: .*9"),
    ],
)
def test_rows_that_a_training_would_refuse_are_refused(option, text, message, add, tmp_path):
    (tmp_path / "given.tsv").write_text(text)
    with pytest.raises(InputError, match=message):
        add(option, tmp_path / "given.tsv")
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_of_senteval_is_named_with_its_line(add, tmp_path):
    (tmp_path / "SICK").mkdir()
    for name in more_data.SICK:
        (tmp_path / "SICK" / f"{name}.txt").write_text("a\tb\tc\trelatedness_score\te\n1\tan owl\ta bird\n")
    with pytest.raises(InputError, match=r"SICK_train.txt:2: the line has 3 fields; expected 5"):
        add("--senteval", tmp_path)


def test_texts_of_dev_and_test_sets_are_left_out_and_pairs_are_drawn(add, small_data, tmp_path, capsys):
    dev, pair = (rows(small_data / f"{name}-dev.csv")[0] for name in ("ids-sst", "quora"))
    test = rows(small_data / "sts-test-student.csv")[0]["sentence2"]
    (tmp_path / "texts.txt").write_text(f"an owl\n{dev['sentence'].upper()}\na heron\n{test}\n", encoding="utf-8")
    with (tmp_path / "triplets.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(
            [["sent0", "sent1", "hard_neg"], ["an, owl", "a bird", "a fish"], ["a", pair["sentence1"], "b"]]
        )
    (tmp_path / "ragged.csv").write_text("sent0,sent1\na,b\nc\n")
    with pytest.raises(InputError, match=r"ragged.csv: row 3 has 1 columns; expected 2"):
        add("--triplets", tmp_path / "ragged.csv")
    add("--sentences", tmp_path / "texts.txt", "--triplets", tmp_path / "triplets.csv", "--drawn", 20)

    assert "sentences.txt: 2 of 4 rows\nnli_triplets.csv: 1 of 2 rows\n" in capsys.readouterr().out
    assert (tmp_path / "out" / "sentences.txt").read_text(encoding="utf-8") == "an owl\na heron\n"
    with (tmp_path / "out" / "nli_triplets.csv").open(encoding="utf-8", newline="") as file:
        assert [*csv.reader(file)] == [["sent0", "sent1", "hard_neg"], ["an, owl", "a bird", "a fish"]]
    pairs = [row["sentence1"] for row in rows(small_data / "quora-train.csv")]
    drawn = [row["sentence1"] for row in rows(tmp_path / "out" / "quora-train.csv")]
    places = [pairs.index(text) for text in drawn]
    assert len(drawn) == 20
    assert places == sorted(set(places)) != [*range(20)]


# Rows that move to the dev sets are lost nowhere and leave no sentence behind.


SAMPLE = CHECKOUT_DATA / "sample"


def read_course(path: Path) -> list[tuple[str, ...]]:
    """Ids, texts and labels of a file of the course."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return [tuple(f"{float(v):g}" if k == rows.fieldnames[-1] else v for k, v in row.items() if k) for row in rows]


def test_every_row_is_in_one_part_and_no_sentence_in_two(tmp_path):
    sizes = enlarge(SAMPLE, tmp_path / "new", share=0.2)
    seen = {"train": set[str](), "dev": set[str]()}
    for name, file in {"sentiment": "ids-sst", "paraphrase": "quora", "similarity": "sts"}.items():
        train, dev, old_train, old_dev = (
            read_course(folder / f"{file}-{split}.csv")
            for folder in (tmp_path / "new", SAMPLE)
            for split in ("train", "dev")
        )
        assert sorted(train + dev) == sorted(old_train + old_dev)
        assert dev[: len(old_dev)] == old_dev
        assert sizes[name] == (len(train), len(dev))
        assert 0 < len(dev) - len(old_dev) <= round(0.2 * len(old_train))
        seen["train"].update(normalised(text) for text in chain.from_iterable(row[1:-1] for row in train))
        seen["dev"].update(normalised(text) for text in chain.from_iterable(row[1:-1] for row in dev[len(old_dev) :]))
        test = f"{file}-test-student.csv"
        assert (tmp_path / "new" / test).read_bytes() == (SAMPLE / test).read_bytes()
    assert not seen["train"] & seen["dev"]


# Each kind gets as many pairs of its own sets, in the course's format.


@pytest.fixture
def pairs_of_kinds(tmp_path) -> Path:
    """Each set has six pairs that name it, one of them twice, with a quote and without a score in the last one."""
    for name in (name for sets in KINDS.values() for name in sets):
        year, subset = name.split("/")
        folder = tmp_path / "pairs_of_kinds" / "STS" / f"{year}-en-test"
        folder.mkdir(parents=True, exist_ok=True)
        pairs = "".join(f'{name} "{row}"\tpair {row}\n' for row in range(6))
        (folder / f"STS.input.{subset}.txt").write_text(pairs + pairs.splitlines()[0] + "\n", encoding="utf-8")
        (folder / f"STS.gs.{subset}.txt").write_text("0\n1\n2.5\n4\n5\n\n0\n", encoding="utf-8")
    return tmp_path / "pairs_of_kinds"


def test_every_kind_has_pairs_of_its_sets_with_their_scores(pairs_of_kinds, tmp_path):
    write(pairs_of_kinds, tmp_path / "kinds", pairs=12)
    for kind, sets in KINDS.items():
        rows = load_rows(task_named(tmp_path / "kinds" / kind, "similarity"), "train")
        assert len(rows) == len(set(zip(*rows.sentences, strict=True))) == 12
        firsts, seconds = rows.sentences
        assert {text.split()[0] for text in firsts} == set(sets)
        place = [int(text.split()[1]) for text in seconds]
        assert firsts == [f'{text.split()[0]} "{row}"' for text, row in zip(firsts, place, strict=True)]
        np.testing.assert_array_equal(np.asarray(rows.labels), np.array([0, 1, 2.5, 4, 5])[place])
    with pytest.raises(InputError, match="15 different pairs of captions; pass --pairs 15 or less"):
        write(pairs_of_kinds, tmp_path / "more", pairs=16)


# Pairs that a score reads are left out, and differences are those of the same seeds.


def test_pairs_are_read_or_unread_in_sub_sets_with_read_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.unread_pairs.FEWEST", 2)
    monkeypatch.setattr("scripts.unread_pairs.SMALL", replace(SMALL, suites=replace(SMALL.suites, limit=100)))
    write_sts(senteval := tmp_path / "senteval", pairs=40)
    whole = {of.name: of.read(of.paths(senteval)).sampled(100) for of in SETS["sts"]}
    first, second = whole["STS14"].scored_columns
    assert len(first) == 100  # of 240
    other = whole["STS15"].scored_columns
    pairs = [(first[3], second[3]), (second[5], first[5]), (first[7], "another"), (other[0][0], other[1][0])]
    lines = ["\tid\tsentence1\tsentence2\tsimilarity", *(f"{n}\t{n}\t{a}\t{b}\t4.0" for n, (a, b) in enumerate(pairs))]
    (tmp_path / "sts-train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = pairs_of_tasks(tmp_path, senteval)
    assert found.keys() == {"STS14"}  # one pair of STS15 is not enough
    of = found["STS14"]
    assert np.flatnonzero(of.read).tolist() == [3, 5]
    parts, touched = whole["STS14"].parts[whole["STS14"].scored], {text for pair in pairs for text in pair}
    unread = [row for row in range(100) if parts[row] in parts[[3, 5]] and not touched & {first[row], second[row]}]
    assert np.flatnonzero(of.unread).tolist() == unread != []
    np.testing.assert_array_equal(of.labels, whole["STS14"].labels)


def test_packed_start_weights_keep_their_heads_and_what_they_read(tiny_encoder, tmp_path, monkeypatch):
    model = model_of_every_kind(tiny_encoder)
    model.save(tmp_path / "model")
    monkeypatch.setattr(sys, "argv", ["gpu_inputs", str(tmp_path / "inputs"), "--start", str(tmp_path / "model")])
    gpu_inputs.main()
    packed = MultitaskModel.load(tmp_path / "inputs" / "start", "cpu", "fp32")
    for name, parameter in packed.state_dict().items():
        assert torch.equal(parameter, model.state_dict()[name].half().float())
    recorded = TrainedOn.read(tmp_path / "inputs" / "start")
    assert recorded is not None
    assert recorded.unknown == ("the training data of model is not recorded",)


def test_runs_without_a_table_are_refused(tmp_path, monkeypatch):
    of_other_tables = SimpleNamespace(finished_tables={"sparsity-own": None})
    monkeypatch.setattr("scripts.unread_pairs.PresetResults.read", lambda *_: of_other_tables)
    monkeypatch.setattr("scripts.unread_pairs.pairs_of_tasks", lambda *_: {})
    with pytest.raises(InputError, match="runs: the preset small has no finished table sparsity; run it first"):
        compare(tmp_path / "runs", tmp_path, tmp_path)


def test_differences_are_of_the_same_seeds_on_the_pairs_that_are_kept():
    random, labels, kept = np.random.default_rng(0), np.arange(8.0), np.arange(8) < 5
    keys = [WHOLE, *(pruned(share, criterion) for share in SHARES for criterion in ("score", "random"))]
    answers = {
        (key, seed): SimpleNamespace(labels=labels, predictions=random.random(8)) for key in keys for seed in (0, 1)
    }
    rows = {key: [SimpleNamespace(seed=seed, answers={"STS12": answers[key, seed]}) for seed in (1, 0)] for key in keys}
    rows[WHOLE].append(SimpleNamespace(seed=2, answers={}))  # the others have not got so far
    table = SimpleNamespace(runs=rows)
    found = dict(differences(scores(table, {"STS12": labels}, {"STS12": kept})))

    def score(key: str, seed: int) -> float:
        return stats.spearmanr(labels[:5], answers[key, seed].predictions[:5]).statistic

    half = [score(pruned(0.5, "score"), seed) - score(pruned(0.5, "random"), seed) for seed in (0, 1)]
    assert found["50% by score less at random"] == pytest.approx(half)
    low = [
        np.mean([score(pruned(s, "score"), seed) - score(pruned(s, "random"), seed) for s in (0.01, 0.05, 0.1, 0.2)])
        for seed in (0, 1)
    ]
    assert found["1% to 20% by score less at random"] == pytest.approx(low)
    with pytest.raises(InputError, match="STS12: other labels than the runs have"):
        scores(table, {"STS12": labels + 1}, {"STS12": kept})
