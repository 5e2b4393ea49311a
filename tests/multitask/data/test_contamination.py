"""Training sentences and pairs are found again in any case, spacing or tokenisation, and no others are."""

import shutil
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minbert.download_checkpoint import BUNDLED, resolve
from minbert.errors import InputError
from minbert.files import sha256_of_file
from multitask.base.options import RunOptions
from multitask.base.runs import Run
from multitask.data.contamination import RECORD, TrainedOn, hash_sentences, normalised
from multitask.data.examples import drawn_rows
from multitask.stages.ensemble import ensemble
from multitask.stages.finetune import finetune
from multitask.stages.fuse import fuse
from multitask.stages.mlm import mlm
from multitask.stages.pretrain import pretrain
from multitask.stages.settings import SUPERVISED, FinetuneConfig, FuseConfig
from multitask.stages.settings_of_pretraining import MlmConfig, PretrainConfig
from multitask.stages.settings_without_training import EnsembleConfig
from multitask.tasks.declarations import task_named
from multitask.tasks.read_examples import load_rows
from multitask.tasks.sources import Lines, Triplets, read_texts
from multitask.tasks.task import Split
from multitask.training.contrastive_source import ContrastiveSource
from multitask.training.settings import OptimizerConfig
from multitask.training.source import TaskSource

Columns = Sequence[Sequence[str]]


def record(columns: Columns, unknown: tuple[str, ...] = ()) -> TrainedOn:
    return replace(TrainedOn.of_rows([hash_sentences(column) for column in columns]), unknown=unknown)


def known_of(folder: Path | str) -> TrainedOn:
    return TrainedOn.of_folder(Path(folder), str(folder))


# What counts as the same sentence.

LETTERS = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=6)
NUMBERS = st.sampled_from(["7", "42", "1.5", "2-1", "9:30", "1/2", "1,000"])
SYMBOLS = st.sampled_from(["c++", "c#", "$5", "50%", "=="])
# As people write it, and as the Penn Treebank's tokenisers do.
TREEBANK = (
    ",=> ,;.=> .;!=> !;?=> ?;:=> :;...=> . . .;…=> ...;n't=> n't;'s=> 's;’s=> 's; \"=> ``;\"=> ''"
    "; (=> -LRB- ;)=> -RRB- ; [=> -lsb- ;]=> -rsb- ;—=> -- ; – => -- ;a/b=>a \\/ b;\u00a0=> ; <.X>=> < .X >"
    ";é=>e;é=>e\u0301; clichés=> clichM-is; —=> M-^W"
)
MARKS = st.sampled_from([tuple(pair.split("=>")) for pair in TREEBANK.split(";")])
PIECES = st.lists(
    st.one_of(*[part.map(lambda text: (f" {text}", f"  {text} ")) for part in (LETTERS, NUMBERS, SYMBOLS)], MARKS)
)


@given(PIECES)
@example([(" 7", "  7 "), ("—", " -- "), (" 7", "  7 ")])
@example([(" 7", "  7 "), (" —", " M-^W"), (" 7", "  7 ")])
def test_case_spacing_and_tokenisation_do_not_matter(pieces):
    plain, tokenised = ("".join(side) for side in zip(*pieces, strict=True)) if pieces else ("", "")
    assert normalised(f"x{plain}") == normalised(f"x{tokenised}")
    assert normalised(f"x{plain}") == normalised(f"x{plain}".title()) == normalised(f" x{plain}\n")


@given(st.text(), st.text())
def test_sentences_that_differ_in_letters_differ(first, second):
    """The reference looks at each character's category by itself."""

    def letters(text: str) -> str:
        text = unicodedata.normalize("NFKD", text).casefold()
        return "".join(c for c in text if unicodedata.category(c)[0] == "L" or c in "#$%&+=|~" or ord(c) > 0x1F000)

    if letters(first) != letters(second):
        assert normalised(first) != normalised(second)


DIFFERENT = """It rose 1.5 percent|It rose 15 percent; They won 2-1|They won 21; at 9:30|at 930; learn C|learn C++
    ; learn C#|learn C++; pay $5|pay 5; 1/2 cup|12 cup; ½ cup|12 cup; the value of √2|the value of 2
    ; == or ===|=== or ====; ?|!; |.; O+|O-; a man runs|a man run; two dogs|two  dogs run; M-16 rifle|16 rifle
    ; LRB|-LRB-"""
EQUAL = """It's a co-writer (2002).|it 's a co - writer -LRB- 2002 -RRB-; They won 2–1 in 2002.|They won 2-1 in 2002
    ; 1½ cups|11/2 cups; He paid 1,000|he paid 1000; * * *|***"""


@pytest.mark.parametrize(("pairs", "equal"), [(DIFFERENT, False), (EQUAL, True)])
def test_what_makes_sentences_different(pairs, equal):
    for pair in pairs.split(";"):
        first, second = pair.strip().split("|")
        assert (normalised(first) == normalised(second)) is equal, pair


# The record, against sets of the sentences themselves.

FEW = st.sampled_from(["a b", "A  b.", "ab", "a c", "b a", "c", "", "?", "1.5", "15"])
ROWS = st.lists(st.tuples(FEW, FEW), max_size=8)


@given(ROWS, ROWS, ROWS)
def test_answers_are_those_of_sets_of_sentences(one, other, asked):
    def columns(rows: list[tuple[str, str]]) -> list[list[str]]:
        return [[row[column] for row in rows] for column in range(2)]

    trained = record(columns(one), ("x", "y")) | record(columns(other), ("y", "z"))
    assert trained.unknown == ("x", "y", "z")
    sentences = {normalised(text) for row in one + other for text in row}
    pairs = {frozenset(map(normalised, row)) for row in one + other}
    first, second = columns(asked)
    assert trained.sentences_seen(first).tolist() == [normalised(text) in sentences for text in first]
    assert trained.pairs_seen(first, second).tolist() == [frozenset(map(normalised, row)) in pairs for row in asked]
    assert trained.pairs_seen(second, first).tolist() == trained.pairs_seen(first, second).tolist()
    for hashes, count in ((trained.sentences, len(sentences)), (trained.pairs, len(pairs))):
        assert hashes.dtype == np.uint64
        assert hashes.tolist() == sorted(set(hashes.tolist()))
        assert len(hashes) == count


def test_what_is_kept_is_read_again_and_written_once_unless_it_is_of_another_version(tmp_path):
    trained = record((["a", "b"], ["c", "d"]), ("of Quora's é",))
    for folder in (tmp_path / "one", tmp_path / "two"):
        trained.keep(folder)
    found = TrainedOn.read(tmp_path / "one")
    assert found is not None
    assert (found.sentences.tolist(), found.pairs.tolist()) == (trained.sentences.tolist(), trained.pairs.tolist())
    assert found.unknown == trained.unknown
    assert sha256_of_file(tmp_path / "one" / RECORD) == sha256_of_file(tmp_path / "two" / RECORD)
    record((["e"],)).keep(tmp_path / "one")
    assert sha256_of_file(tmp_path / "one" / RECORD) == sha256_of_file(tmp_path / "two" / RECORD)
    np.savez(tmp_path / RECORD, version=np.array(0), sentences=trained.sentences)
    assert TrainedOn.read(tmp_path) is None
    trained.keep(tmp_path)
    assert sha256_of_file(tmp_path / RECORD) == sha256_of_file(tmp_path / "two" / RECORD)


def test_kept_hashes_mean_the_same_for_ever():
    """A change here makes all existing records useless: raise VERSION with it."""

    def digest(text: bytes) -> int:
        return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")

    brown, empty = digest(b"amansdogbrownruns1.5km"), digest(b"")
    assert hash_sentences(["A man's dog (brown) runs 1.5 km.", ""]).tolist() == [brown, empty]
    both = b"".join(value.to_bytes(8, "little") for value in sorted((digest(b"a"), digest(b"b"))))
    assert record((["a"], ["b"])).pairs.tolist() == record((["b"], ["a"])).pairs.tolist() == [digest(both)]
    triplets = record((["premise"], ["entailed"], ["contradicted"]))  # the anchor makes a pair with each of the others
    first, second = ["entailed", "premise", "entailed"], ["premise", "contradicted", "contradicted"]
    assert triplets.pairs_seen(first, second).tolist() == [True, True, False]
    assert not record((["alone"],)).pairs_seen(["alone"], ["alone"]).any()


# Checkpoints.


def test_published_checkpoints_say_what_is_known_of_their_data(tmp_path, tiny_encoder, monkeypatch):
    named = TrainedOn.of_folder(resolve(BUNDLED), BUNDLED)
    assert not len(named.sentences)
    assert not named.sentences_seen(["Two dogs run."]).any()
    assert any("Quora" in line and "SNLI" in line and "over a billion" in line for line in named.unknown)
    assert all(line.startswith(f"{BUNDLED}: ") for line in named.unknown)
    copy = known_of(shutil.copytree(resolve(BUNDLED), tmp_path / "copy"))
    assert [line.partition(": ")[2] for line in copy.unknown] == [line.partition(": ")[2] for line in named.unknown]
    (bert,) = TrainedOn.of_folder(tiny_encoder, "google-bert/BERT-base-uncased").unknown
    assert "English Wikipedia and BookCorpus" in bert
    shutil.copytree(tiny_encoder, tmp_path / "bert-base-uncased")  # a folder of a published name
    monkeypatch.chdir(tmp_path)
    assert known_of("bert-base-uncased").unknown == ("the training data of bert-base-uncased is not recorded",)


# Stages.


@pytest.fixture(scope="module")
def data(small_data, sample_data, tmp_path_factory) -> Path:
    """The small data with a little unlabelled text and triplets."""
    folder = shutil.copytree(small_data, tmp_path_factory.mktemp("contamination") / "data")
    for name in ("sentences.txt", "nli_triplets.csv"):
        with (sample_data / name).open(encoding="utf-8", newline="") as file:
            (folder / name).write_text("".join(islice(file, 41)), encoding="utf-8", newline="")
    return folder


@pytest.fixture
def options(tmp_path) -> RunOptions:
    return RunOptions(device="cpu", precision="fp32", runs=tmp_path / "runs")


def task_sentences(data: Path, task: str, split: Split = "train") -> tuple[list[str], ...]:
    return load_rows(task_named(data, task), split, labelled=True).sentences


def sentences_of(trained: TrainedOn, *columns: Sequence[str]) -> int:
    """Number of sentences of a record that are not in the columns."""
    return len(np.setdiff1d(trained.sentences, hash_sentences(text for column in columns for text in column)))


def test_only_rows_that_come_up_count(tiny_encoder, data, options, monkeypatch):
    """The record of down-sampled sets contains exactly the rows that the sources were asked for."""
    asked: dict[str, set[int]] = {"sentiment": set(), "quora": set()}

    def spy(kind, name):
        inputs = kind.inputs

        def spied(self, rows):
            asked[name].update(rows.tolist())
            return inputs(self, rows)

        monkeypatch.setattr(kind, "inputs", spied)

    spy(TaskSource, "sentiment")
    spy(ContrastiveSource, "quora")
    tuned = FinetuneConfig(tasks=("sentiment",), epochs=2, epoch_size=12, batch_size=8)
    run = finetune(str(tiny_encoder), data, tuned, options)
    seen = known_of(run.folder).sentences_seen(task_sentences(data, "sentiment")[0])
    assert set(np.flatnonzero(seen).tolist()) == asked["sentiment"]
    assert len(asked["sentiment"]) == 24
    assert not known_of(run.model_folder()).sentences_seen(task_sentences(data, "sentiment", "dev")[0]).any()
    assert known_of(str(run.folder)).unknown == (f"the training data of {tiny_encoder.name} is not recorded",)
    stopped = replace(tuned, epochs=99, patience=1, optimizer=OptimizerConfig(learning_rate=0.0))
    run = finetune(str(tiny_encoder), data, stopped, options)  # ends after its second epoch
    assert known_of(run.folder).sentences_seen(task_sentences(data, "sentiment")[0]).tolist() == seen.tolist()
    config = PretrainConfig(sources=("quora",), quora_share=0.25, epochs=2, batch_size=8, select="last")
    run = pretrain(str(tiny_encoder), data, config, options)
    seen = known_of(run.folder).pairs_seen(*task_sentences(data, "paraphrase"))
    assert set(np.flatnonzero(seen).tolist()) == asked["quora"]
    assert len(asked["quora"]) == 32


def test_a_chain_answers_for_all_of_it_when_its_parents_are_gone(tiny_encoder, data, options):
    config = PretrainConfig(sources=("nli", "unlabelled"), train_limit=16, batch_size=8, select="last", mlm_weight=0.1)
    first = pretrain(str(tiny_encoder), data, config, options)
    second = fuse(
        str(first.folder),
        data,
        FuseConfig(replace(SUPERVISED, untrained=(), epochs=1, train_limit=16), unlabelled=("similarity",)),
        options,
    )
    shutil.rmtree(first.folder)
    trained = known_of(second.model_folder())
    triplets = read_texts(data / "nli_triplets.csv", Triplets.columns).sentences
    (unlabelled,) = read_texts(data / "sentences.txt", Lines.columns).sentences
    (texts,), (one, other) = task_sentences(data, "sentiment"), task_sentences(data, "similarity")
    pairs = [*one, *other]

    def drawn(column):
        return [column[row] for row in drawn_rows(len(column), 16)]

    read = (*triplets, texts, pairs)
    known = [unlabelled[:16], *map(drawn, read)]
    for rows in known:
        assert trained.sentences_seen(rows).all()
    assert trained.pairs_seen(drawn(triplets[2]), drawn(triplets[0])).all()
    assert not trained.pairs_seen(one, other).any()  # views of the sentences only
    assert not sentences_of(trained, *known)


def test_masked_language_modelling_keeps_what_it_reads_and_from_scratch_nothing_else(tiny_encoder, data, options):
    start = finetune(str(tiny_encoder), data, FinetuneConfig(tasks=("similarity",), epochs=1), options)
    (sentences,) = read_texts(data / "sentences.txt", Lines.columns).sentences
    for scratch in (False, True):
        config = MlmConfig(from_scratch=scratch, dev_share=0.25, batch_size=8)
        trained = known_of(mlm(str(start.folder), data, config, options).folder)
        different = len({*sentences})
        assert trained.sentences_seen(sorted({*sentences})).sum() == different - round(0.25 * different)
        assert trained.pairs_seen(*task_sentences(data, "similarity")).all() == (not scratch)
        assert bool(trained.unknown) == (not scratch)
        assert bool(sentences_of(trained, sentences)) == (not scratch)


def test_an_ensemble_was_trained_on_what_its_members_were(tiny_encoder, data, options):
    runs = [
        finetune(str(tiny_encoder), data, FinetuneConfig(tasks=(task,), epochs=1), options)
        for task in ("similarity", "paraphrase")
    ]
    trained = known_of(ensemble([run.folder for run in runs], data, EnsembleConfig(), options).folder)
    for task in ("similarity", "paraphrase"):
        assert trained.pairs_seen(*task_sentences(data, task)).all()
    assert not trained.sentences_seen(task_sentences(data, "sentiment")[0]).any()


def test_a_killed_run_does_not_know_its_sentences_until_it_is_complete(tiny_encoder, data, options, monkeypatch):
    config = FinetuneConfig(tasks=("sentiment",), epochs=1)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Run, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            finetune(str(tiny_encoder), data, config, options)
    (checkpoint,) = options.runs.glob("finetune-*/checkpoints/*")
    (checkpoint.parent.parent / RECORD).unlink()
    assert "records no sentences; run its command again" in known_of(checkpoint).unknown[0]
    trained = known_of(finetune(str(tiny_encoder), data, config, options).folder)
    assert trained.sentences_seen(task_sentences(data, "sentiment")[0]).all()


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("sentences", np.zeros(3)),
        ("sentences", np.zeros(3, np.uint64)),
        ("sentences", np.array([{}])),
        ("pairs", np.zeros((1, 2), np.uint64)),
        ("unknown", np.arange(3)),
        ("unknown", np.array("text")),
    ],
)
def test_a_record_of_other_arrays_is_damaged(tmp_path, name, array):
    TrainedOn.of_rows([hash_sentences(["a", "b"])] * 2).keep(tmp_path)
    arrays = dict(np.load(tmp_path / RECORD))
    assert TrainedOn.read(tmp_path).sentences.tolist() == sorted(hash_sentences(["b", "a"]).tolist())
    np.savez(tmp_path / RECORD, **{**arrays, name: array})
    with pytest.raises(InputError, match=f"{RECORD}: damaged.*; delete it"):
        TrainedOn.read(tmp_path)
