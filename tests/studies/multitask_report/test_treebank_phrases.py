"""Phrases are what a recursive walk over the trees finds, less every sentence that is scored."""

import csv
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minbert.errors import InputError
from multitask.data.fetch import CHECKOUT
from studies.multitask_report.treebank_phrases import main, read_trees, write_phrases

TREE = "(4 (3 (2 A) (3 gem)) (3 (2 ,) (3 (3 truly) (2 .))))"
WORDS = st.text("abc'é&-$.", min_size=1, max_size=4)
TREES = st.recursive(
    st.tuples(st.integers(0, 4), WORDS),
    lambda parts: st.tuples(st.integers(0, 4), st.lists(parts, min_size=1, max_size=3)),
    max_leaves=8,
)


def written(tree) -> str:
    label, inner = tree
    return f"({label} {inner if isinstance(inner, str) else ' '.join(map(written, inner))})"


def words(tree) -> list[str]:
    return [tree[1]] if isinstance(tree[1], str) else [word for part in tree[1] for word in words(part)]


def every_phrase(tree) -> list[tuple[str, int]]:
    inner = [] if isinstance(tree[1], str) else [phrase for part in tree[1] for phrase in every_phrase(part)]
    return [*inner, (" ".join(words(tree)), tree[0])]


@given(st.lists(TREES, min_size=1, max_size=4))
def test_every_node_of_a_tree_is_a_phrase(tmp_path_factory, trees):
    path = tmp_path_factory.mktemp("trees") / "train.txt"
    path.write_text("".join(f"{written(tree)}\n" for tree in trees), encoding="utf-8")
    assert list(read_trees(path)) == [every_phrase(tree) for tree in trees]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    shutil.copytree(CHECKOUT / "sample", folder)
    rows = "\tid\tsentence\tsentiment\n"
    (folder / "ids-sst-train.csv").write_text(f"{rows}0\tx\tA gem , truly .\t4\n1\ty\tNo tree\t1\n", encoding="utf-8")
    (folder / "ids-sst-dev.csv").write_text(f"{rows}0\tz\tTruly\t3\n", encoding="utf-8")
    return folder


def test_phrases_of_training_sentences_are_added_except_sentences_that_are_scored(data, tmp_path, capsys, monkeypatch):
    trees = tmp_path / "train.txt"
    punctuated = "(1 (1 (2 No) (0 (2 tree) (2 !))) (2 .))"
    trees.write_text(f"{TREE}\n(1 (2 Other) (1 words))\n(2 (3 a) (2 gem))\n{punctuated}\n")
    monkeypatch.setattr("sys.argv", ["treebank_phrases", str(data), str(trees), str(tmp_path / "new")])
    main()
    assert capsys.readouterr().out == f"{tmp_path}/new: 10 phrases added to 2 sentences\n"
    with (tmp_path / "new" / "ids-sst-train.csv").open(encoding="utf-8", newline="") as file:
        found = [(row["sentence"], row["sentiment"]) for row in csv.DictReader(file, delimiter="\t")]
    phrases = [("A", "2"), ("gem", "3"), ("A gem", "3"), (",", "2"), (".", "2")]  # not "truly .", which the dev set has
    variants = [("No", "2"), ("tree", "2"), ("!", "2"), ("tree !", "0"), ("No tree !", "1")]
    assert found == [("A gem , truly .", "4"), ("No tree", "1")] * 3 + phrases + variants
    for name in ("quora-dev.csv", "sts-test-student.csv", "ids-sst-dev.csv"):
        assert (tmp_path / "new" / name).read_bytes() == (data / name).read_bytes()


def test_training_rows_that_a_dev_or_test_set_has_are_left_out(data, tmp_path):
    trees = tmp_path / "train.txt"
    trees.write_text(f"{TREE}\n")
    with (data / "ids-sst-train.csv").open("a", encoding="utf-8") as file:
        file.write("2\tz\ttruly !\t4\n")
    with (data / "sts-train.csv").open(encoding="utf-8", newline="") as file:
        [pair, *others] = csv.DictReader(file, delimiter="\t")
    with (data / "sts-test-student.csv").open("a", encoding="utf-8") as file:
        file.write(f"9\tq\t{pair['sentence2'].upper()}\t{pair['sentence1']}\n")
    assert write_phrases(data, trees, tmp_path / "new") == (2, 5)
    with (tmp_path / "new" / "sts-train.csv").open(encoding="utf-8", newline="") as file:
        left = [
            (row["sentence1"], row["sentence2"], float(row["similarity"]))
            for row in csv.DictReader(file, delimiter="\t")
        ]
    assert left == [(row["sentence1"], row["sentence2"], float(row["similarity"])) for row in others]


@pytest.mark.parametrize(
    "line", ["(3 (2 A) (4 gem)", "(5 (2 A) (4 gem))", "A gem", "(3 (2 A) (4 gem)))", "(3 A) (4 gem)", ""]
)
def test_what_is_no_tree_is_refused_and_nothing_is_written(data, tmp_path, line):
    trees = tmp_path / "train.txt"
    trees.write_text(f"{TREE}\n{line}\n")
    with pytest.raises(InputError, match=r"train.txt:2: not a tree; expected a line such as"):
        write_phrases(data, trees, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_trees_of_other_sentences_and_an_existing_folder_are_refused(data, tmp_path, capsys, monkeypatch):
    trees = tmp_path / "train.txt"
    trees.write_text("(1 (2 Other) (1 words))\n")
    with pytest.raises(InputError, match=r"no tree of a sentence in .*ids-sst-train.csv"):
        write_phrases(data, trees, tmp_path / "new")
    monkeypatch.setattr("sys.argv", ["treebank_phrases", str(data), str(trees), str(data)])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "exists already" in capsys.readouterr().err
