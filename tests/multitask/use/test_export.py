"""Other libraries compute the same from an exported folder, and it keeps the record of its training data."""

import contextlib
import importlib.util
import io
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from minbert.config import BertConfig
from minbert.errors import InputError
from minbert.files import write_json
from minbert.model import BertModel
from minbert.tokenizer import load_tokenizer
from multitask import SentenceEncoder
from multitask.base.options import RunOptions
from multitask.cli.main import main
from multitask.data.contamination import RECORD, TrainedOn
from multitask.evaluation.suites import evaluate_suites
from multitask.models.model_folder import write_pooling
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import load_encoder
from multitask.models.settings import HeadsConfig
from multitask.stages.finetune import finetune
from multitask.stages.settings import FinetuneConfig
from multitask.tasks import MAIN_TASKS
from multitask.tasks.declarations import chosen_tasks, load_tasks
from multitask.tasks.kinds import Classification, Cosine, MultiLabel, PairClassification, PairRegression, Regression
from multitask.tasks.read_examples import load_rows
from multitask.tasks.task import Task, TaskFiles
from multitask.use import export, export_heads
from multitask.use.export import export_onnx, export_sentence_transformers, export_transformers
from multitask.use.export_heads import export_onnx_with_heads, loss_table
from tests.conftest import ROOT
from tests.multitask.evaluation.folder import write

SENTENCES = ["A man is playing a guitar.", "", "two dogs run in the snow " * 60, "ein Hund", "?"]
PAIRS = list(zip(SENTENCES, SENTENCES[::-1], strict=True))
EXACT = {"device": "cpu", "precision": "fp32"}
NOTHING = TrainedOn()
TEXTS = ["A gem.", "It falls apart.", "It is a film."]  # of the page's program
ONE = TaskFiles(text=("text",), label="label")
CLASSES = Classification(name="linear", files=ONE, labels=("bad", "good", "so-so"), temperature=1.7)
PAIR = TaskFiles(text=("first", "second"), label="label")
TASKS: tuple[Task, ...] = (
    CLASSES,  # its name is also that of values within the file
    PairClassification(name="two", files=PAIR, labels=("no", "yes"), temperature=0.6),
    PairClassification(name="three", files=PAIR, labels=(0, 1, 2)),
    MultiLabel(name="tags", files=ONE, labels=("x", "y"), thresholds=(0.2, 0.7), temperature=2),
    MultiLabel(name="new-tags", files=ONE, labels=("x", "y")),
    Regression(name="bounded", files=replace(ONE, text=("Is it good? {text}",)), range=(1, 5)),
    Regression(name="open", files=ONE, learned_range=(-30, 70)),
    PairRegression(name="pair", files=PAIR, range=(0, 10)),
    Cosine(name="cosine", files=replace(PAIR, text=("first", "({second})")), range=(0, 5)),
)
HEADS = [
    HeadsConfig(),
    HeadsConfig("none"),
    HeadsConfig("separate", "joint", similarity_pairs="features"),
    HeadsConfig("shared", residual=True, head_hidden_size=20),
]


@pytest.fixture(scope="module", params=["mean", "cls"])
def encoder(request, tiny_encoder, tmp_path_factory) -> SentenceEncoder:
    """With a prompt; the second one is compared by dot products and keeps capitals, with one more special token."""
    folder = shutil.copytree(tiny_encoder, tmp_path_factory.mktemp("encoder") / "start")
    settings = {"similarity_fn_name": "dot" if request.param == "cls" else None}
    settings |= {"prompts": {"query": "a man ", "document": ""}}
    write_json(folder / "config_sentence_transformers.json", settings)
    if request.param == "cls":
        write_json(folder / "tokenizer_config.json", {"do_lower_case": False, "additional_special_tokens": ["##n"]})
    loaded = SentenceEncoder.load(folder, pooling=request.param, **EXACT)
    loaded.max_length = 24
    return loaded


@pytest.fixture(scope="module")
def onnx() -> None:
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)


# Encoders.


def test_transformers_has_the_same_states(tiny_encoder, tmp_path):
    encoder = SentenceEncoder.load(tiny_encoder, pooling="mean", **EXACT)
    encoder.max_length = 24
    export_transformers(encoder, tmp_path / "out", NOTHING)
    assert (tmp_path / "out" / RECORD).is_file()  # which these libraries ignore
    model, tokenizer = (kind.from_pretrained(tmp_path / "out") for kind in (AutoModel, AutoTokenizer))
    encoded = tokenizer(SENTENCES[2], truncation=True, return_tensors="pt")
    assert encoded["input_ids"].tolist() == encoder.tokenizer(SENTENCES[2:3], 24).input_ids.tolist()
    with torch.no_grad():
        theirs = model.eval()(**encoded).last_hidden_state
        ours = encoder.model(encoded["input_ids"]).last_hidden_state
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert SentenceEncoder.load(tmp_path / "out", **EXACT).pooling == "mean"


def test_what_is_beyond_the_encoder_is_named_and_left_out(tiny_encoder, tmp_path, caplog):
    types = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]
    folder = shutil.copytree(tiny_encoder, tmp_path / "in")
    write_json(folder / "modules.json", [{"type": f"sentence_transformers.models.{t}", "path": p} for t, p in types])
    assert main(["export", "--model", str(folder), "--output", str(tmp_path / "out")]) == 0
    assert "Transformer, Pooling, Dense; the export is the encoder alone" in caplog.text
    ours, exported = (AutoModel.from_pretrained(path).state_dict() for path in (tiny_encoder, tmp_path / "out"))
    assert all(torch.equal(ours[name], exported[name]) for name in exported)


@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalised"])
def test_sentence_transformers_has_the_same_vectors(encoder, tmp_path, normalize, caplog):
    from sentence_transformers import SentenceTransformer

    export_sentence_transformers(encoder, tmp_path / "out", "# A card\n", normalize, NOTHING)
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    is_dot = encoder.pooling == "cls"
    assert (theirs.max_seq_length, theirs.similarity_fn_name) == (24, "dot" if is_dot else "cosine")
    ours = encoder.encode(SENTENCES, normalize=normalize)
    np.testing.assert_allclose(theirs.encode(SENTENCES), ours, atol=1e-5)
    with_prompt = encoder.encode(SENTENCES, normalize=normalize, prompt="a man {text}")
    np.testing.assert_allclose(theirs.encode_query(SENTENCES)[2:], with_prompt[2:], atol=1e-5)
    assert (tmp_path / "out" / "README.md").read_text() == "# A card\n"
    assert (tmp_path / "out" / RECORD).is_file()  # which these libraries ignore
    caplog.set_level("INFO")
    back = load_encoder(tmp_path / "out", **EXACT)
    assert 'no prompts are added to texts; this model has query "a man "' in caplog.text
    assert ('compare by cosine; this model is meant for "dot"' in caplog.text) == is_dot
    assert isinstance(back, SentenceEncoder)
    np.testing.assert_array_equal(back.encode(SENTENCES), encoder.encode(SENTENCES))


def with_modules(encoder: Path, folder: Path, modules: int, similarity: str = "cosine") -> Path:
    """An encoder as a folder of sentence-transformers with its first two modules, or these and Normalize."""
    shutil.copytree(encoder, folder)
    places = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")][:modules]
    listed = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for idx, (kind, path) in enumerate(places)
    ]
    write_json(folder / "modules.json", listed)
    write_pooling(folder, "mean", 32)
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": similarity})
    return folder


@pytest.mark.parametrize(("modules", "similarity"), [(2, "dot"), (3, "dot"), (3, "cosine")])
def test_an_unchanged_model_of_sentence_transformers_is_exported_as_it_is(
    tiny_encoder, tmp_path, capsys, modules, similarity
):
    from sentence_transformers import SentenceTransformer

    folder = with_modules(tiny_encoder, tmp_path / "in", modules, similarity)
    export = ["export", "--model", str(folder), "--output", str(tmp_path / "out"), "--to", "sentence-transformers"]
    assert main(export) == 0
    before, after = (SentenceTransformer(str(tmp_path / name), device="cpu") for name in ("in", "out"))
    similarities = [model.similarity(*[model.encode(SENTENCES)] * 2).numpy() for model in (before, after)]
    np.testing.assert_allclose(*similarities, rtol=1e-4, atol=1e-5)
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"compared by {'dot product' if similarity == 'dot' else 'cosine'}." in card
    assert (" of length 1 " in card) == (modules == 3)


def test_a_mean_that_leaves_out_prompts_still_does(encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

    export_sentence_transformers(encoder, tmp_path / "in", "", False, NOTHING)
    model = SentenceTransformer(str(tmp_path / "in"), device="cpu")
    with_prompt = model.encode_query(SENTENCES)
    model.set_pooling_include_prompt(False)
    model.save(str(tmp_path / "other"))
    own = SentenceEncoder.load(tmp_path / "other", **EXACT)
    export_sentence_transformers(own, tmp_path / "out", "", False, NOTHING)
    exported = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode_query(SENTENCES)
    np.testing.assert_allclose(exported, model.encode_query(SENTENCES), atol=1e-5)
    assert abs(exported - with_prompt).max() > 1e-3


def test_first_numbers_are_those_that_sentence_transformers_keeps(encoder, tmp_path):
    from sentence_transformers import SentenceTransformer

    export_sentence_transformers(encoder, tmp_path / "out", "# A card\n", False, NOTHING)
    settings = tmp_path / "out" / "config_sentence_transformers.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"truncate_dim": 8}))
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    cut = encoder.encode(SENTENCES)[:, :8]
    np.testing.assert_allclose(theirs.encode(SENTENCES), cut, atol=1e-5)
    unit = encoder.encode(SENTENCES, normalize=True, dimensions=8)
    np.testing.assert_allclose(theirs.encode(SENTENCES, normalize_embeddings=True), unit, atol=1e-5)
    back = load_encoder(tmp_path / "out", **EXACT)  # with sentence-transformers, as the folder cuts embeddings
    np.testing.assert_allclose(back.encode(SENTENCES), cut, atol=1e-5)
    np.testing.assert_allclose(back.encode(SENTENCES, dimensions=3), cut[:, :3], atol=1e-5)
    with pytest.raises(InputError, match="dimensions is 33; the embeddings of"):
        back.encode(SENTENCES, dimensions=33)


def embeddings_of_onnx(folder: Path, sentences: list[str]) -> np.ndarray:
    """Embeddings as a user without this project computes them: tokenizers, ONNX Runtime, the folder's settings."""
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(json.loads((folder / "embedding.json").read_text())["max_length"])
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(sentences)
    names = {"input_ids": "ids", "attention_mask": "attention_mask"}
    inputs = {name: np.array([getattr(e, part) for e in encoded]) for name, part in names.items()}
    (embeddings,) = InferenceSession(folder / "model.onnx").run(["sentence_embedding"], inputs)
    return embeddings


@pytest.mark.parametrize("modules", [2, 3])
def test_onnx_scales_embeddings_as_a_model_of_sentence_transformers_does(onnx, tiny_encoder, tmp_path, modules):
    from sentence_transformers import SentenceTransformer

    folder = with_modules(tiny_encoder, tmp_path / "in", modules)
    assert main(["export", "--model", str(folder), "--output", str(tmp_path / "out"), "--to", "onnx"]) == 0
    expected = SentenceTransformer(str(folder), device="cpu").encode(SENTENCES)
    assert np.allclose(np.linalg.norm(expected, axis=1), 1) == (modules == 3)
    np.testing.assert_allclose(embeddings_of_onnx(tmp_path / "out", SENTENCES), expected, atol=1e-4)


@pytest.fixture(scope="module", params=["mean, length 1", "cls, pruned"])
def in_onnx(request, onnx, tiny_encoder, tmp_path_factory) -> tuple[Path, SentenceEncoder, bool]:
    """An exported encoder, and whether its embeddings have length 1."""
    folder = tmp_path_factory.mktemp("onnx")
    normalize = request.param == "mean, length 1"
    if normalize:
        encoder = SentenceEncoder.load(tiny_encoder, pooling="mean", **EXACT)
    else:
        shape = BertConfig.from_file(tiny_encoder / "config.json").values()
        sizes = {"layer_heads": [1, 4], "layer_intermediate_sizes": [64, 5]}
        BertModel(BertConfig.from_dict({"model_type": "bert"} | shape | sizes)).save(folder / "pruned")
        load_tokenizer(str(tiny_encoder)).save(folder / "pruned")
        encoder = SentenceEncoder.load(folder / "pruned", pooling="cls", **EXACT)
    encoder.max_length = 24
    export_onnx(encoder, folder / "out", normalize, NOTHING)
    return folder / "out", encoder, normalize


def test_onnx_runtime_has_the_same_vectors(in_onnx):
    folder, encoder, normalize = in_onnx
    expected = encoder.encode(SENTENCES, normalize=normalize)
    for row, sentence in enumerate(SENTENCES):
        np.testing.assert_allclose(embeddings_of_onnx(folder, [sentence])[0], expected[row], atol=1e-4)
    assert TrainedOn.read(folder) is not None
    many = embeddings_of_onnx(folder, SENTENCES * 9)
    np.testing.assert_allclose(many, np.tile(expected, (9, 1)), atol=1e-4)


def test_a_file_that_computes_something_else_is_not_left_behind(in_onnx, tmp_path, monkeypatch):
    """The file is that of another scaling or pooling than is asked for."""
    folder, encoder, _ = in_onnx
    monkeypatch.setattr(export, "write_onnx", lambda *given: shutil.copy(folder / "model.onnx", given[-1]))
    other = SentenceEncoder(encoder.model, encoder.tokenizer, "mean", encoder.max_length)
    with pytest.raises(RuntimeError, match="ONNX Runtime's embeddings differ by"):
        export_onnx(other, tmp_path / "out", False, NOTHING)
    undefined = SentenceEncoder(encoder.model, encoder.tokenizer, encoder.pooling, encoder.max_length)
    monkeypatch.setattr(undefined, "encode", lambda texts, **_: np.full((len(texts), 1), np.nan))
    with pytest.raises(RuntimeError, match="ONNX Runtime's embeddings differ by nan"):
        export_onnx(undefined, tmp_path / "out", False, NOTHING)
    assert not any(tmp_path.iterdir())


def test_a_pruned_encoder_leaves_as_onnx_only(tiny_encoder, tmp_path):
    shape = BertConfig.from_file(tiny_encoder / "config.json").values()
    sizes = {"layer_heads": [1, 4], "layer_intermediate_sizes": [64, 5]}
    pruned = SentenceEncoder.load(tiny_encoder, **EXACT)
    pruned.model = BertModel(BertConfig.from_dict({"model_type": "bert"} | shape | sizes))
    for exporting, *settings in ((export_transformers,), (export_sentence_transformers, "", False)):
        with pytest.raises(InputError, match="pruned, and transformers cannot represent that; use --to onnx"):
            exporting(pruned, tmp_path / "out", *settings, NOTHING)


# Folders.


def test_the_command(tiny_encoder, tmp_path, capsys):
    from sentence_transformers import SentenceTransformer

    options = ["--to", "sentence-transformers", "--pooling", "mean", "--normalize"]
    assert main(["export", "--model", str(tiny_encoder), "--output", str(tmp_path / "out"), *options]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}\n"
    expected = SentenceEncoder.load(tiny_encoder, pooling="mean", **EXACT).encode(SENTENCES, normalize=True)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "out")).encode(SENTENCES), expected, atol=1e-5)


def test_only_an_earlier_export_is_replaced(tiny_encoder, tmp_path, monkeypatch, capsys):
    out, mine = tmp_path / "out", tmp_path / "mine"
    arguments = ["export", "--model", str(tiny_encoder), "--output"]
    out.mkdir()  # an empty folder is as good as none
    assert main([*arguments, str(out)]) == 0
    (out / "config.json").unlink()
    assert main([*arguments, str(out)]) == 0
    assert (out / "config.json").is_file()
    capsys.readouterr()
    mine.mkdir()
    (mine / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "new")
    (tmp_path / "forged").mkdir()
    (tmp_path / "forged" / "export.json").write_text("{}")
    (tmp_path / "forged" / "mine.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "inputs.json").write_text("{}")
    inside = [tmp_path / name for name in ("link", "forged", "run/checkpoints/mine")]
    for working in (mine, out):  # `.` would be renamed under the feet of the shell
        monkeypatch.chdir(working)
        for refused in (mine, tmp_path / "file", tiny_encoder, ".", "..", *inside):
            assert main([*arguments, str(refused)]) == 2
            assert capsys.readouterr().err.startswith(f"error: --output {refused}: ")
    assert (mine / "thesis.tex").read_text() == (tmp_path / "file").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "forged", "link", "mine", "out", "run"]
    assert [*(tmp_path / "run").rglob("*")] == [tmp_path / "run" / "inputs.json"]


@pytest.mark.parametrize("to", ["transformers", "sentence-transformers"])
def test_an_export_without_its_record_is_not_left_behind(tiny_encoder, tmp_path, monkeypatch, to):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TrainedOn, "keep", full)
    assert main(["export", "--model", str(tiny_encoder), "--output", str(tmp_path / "out"), "--to", to]) == 1
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("lacking", ["onnxruntime", "onnxscript"])
def test_without_onnx_the_error_says_how_to_get_it(tiny_encoder, tmp_path, monkeypatch, lacking):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == lacking else found(name) or sys)
    with pytest.raises(InputError, match=f"needs {lacking}; install with: .*onnx"):
        export_onnx_with_heads(model_of(tiny_encoder), tmp_path / "out", NOTHING)
    assert not any(tmp_path.iterdir())


# What it was trained on.


@pytest.mark.parametrize("to", ["transformers", "sentence-transformers"])
def test_an_export_keeps_what_its_run_was_trained_on_and_is_evaluated_alike(tiny_encoder, small_data, tmp_path, to):
    options, out = RunOptions("cpu", "fp32", tmp_path / "runs"), tmp_path / "out"
    run = finetune(str(tiny_encoder), small_data, FinetuneConfig(tasks=("similarity",), epochs=1), options)
    assert main(["export", "--model", str(run.folder), "--output", str(out), "--to", to]) == 0
    ours, exported = TrainedOn.read(run.folder), TrainedOn.of_folder(out, str(out))
    assert len(exported.pairs) > 0
    np.testing.assert_array_equal(exported.sentences, ours.sentences)
    np.testing.assert_array_equal(exported.pairs, ours.pairs)
    assert exported.unknown == ours.unknown == (f"the training data of {tiny_encoder.name} is not recorded",)
    rows = []
    for split in ("train", "dev"):
        first, second = load_rows(load_tasks(small_data)["similarity"], split).sentences
        rows += [f"news\tnews\t2015\t{i}\t{i / 4}\t{first[i]}\t{second[i]}" for i in range(16)]
    write(tmp_path / "STS" / "STSBenchmark" / "sts-test.csv", rows)
    both = [load_encoder(name, pooling="mean", **EXACT) for name in (run.folder, out)]
    expected, found = (evaluate_suites(["sts"], one, "", tmp_path)["sts"].tasks["STSBenchmark"] for one in both)
    assert found == expected
    assert (found.rows, found.rows_seen) == (32, 16)


# Models with heads, in programs that have only the named libraries.


def model_of(
    encoder: Path,
    heads: HeadsConfig = HEADS[0],
    pooling: str = "mean",
    tasks: Sequence[Task] = TASKS,
    max_length: int | None = 24,
) -> MultitaskModel:
    """A model whose predictions differ between sentences."""
    torch.manual_seed(1)
    by_name = {task.name: task for task in tasks}
    model = MultitaskModel(SentenceEncoder.read(encoder, pooling, max_length), by_name, heads)
    with torch.no_grad():
        for parameter in model.heads.parameters():
            parameter.normal_(std=0.1)
    return model.eval()


def run_onnx(folder: Path, tasks: Sequence[str], rows: Sequence[str | tuple[str, str]]) -> list[np.ndarray]:
    """Outputs for rows of one kind, as a user without this project computes them."""
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

    description = json.loads((folder / "tasks.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(description["max_length"])
    tokenizer.enable_padding()
    task = description["tasks"][tasks[0]]
    columns = zip(*([row] if isinstance(row, str) else row for row in rows), strict=True)
    parts = zip(task["words"], columns, strict=True)
    texts = [[text and f"{before}{text}{after}".strip() for text in column] for (before, after), column in parts]
    made = list(zip(*texts, strict=True))
    in_turn = task["input"] != "joint_pair"
    encoded = tokenizer.encode_batch([text for row in made for text in row] if in_turn else made)
    inputs = {name: np.array([getattr(e, part) for e in encoded]) for name, part in description["inputs"].items()}
    return InferenceSession(folder / "model.onnx").run(list(tasks), inputs)


def expected_of(model: MultitaskModel, task: str, rows: Sequence[str | tuple[str, str]]) -> np.ndarray:
    found = model.predict(task, rows)
    return np.array([[*p.probabilities.values()] if p.value is None else p.value for p in found])


@pytest.mark.parametrize(("heads", "pooling"), list(zip(HEADS, ["mean", "cls"] * 2, strict=True)), ids=str)
def test_onnx_predicts_every_kind_of_task(onnx, one_layer, tmp_path, monkeypatch, heads, pooling):
    tasks = TASKS if heads == HEADS[0] else [task for task in TASKS if task.name in ("linear", "open", "two", "cosine")]
    model = model_of(one_layer, heads, pooling, tasks)
    report = export_onnx_with_heads(model, tmp_path / "out", NOTHING)
    assert report.startswith(f"checked: {4 * len(tasks)} rows; the largest difference is ")
    assert 0 < float(report.split()[-1]) <= 1e-4
    differing = 0
    for name, task in model.tasks.items():
        rows = PAIRS if task.pair else SENTENCES
        differing += np.ptp(expected_of(model, name, rows), axis=0).max() > 1e-3
        spread = np.diff(task.bounds)[0] if isinstance(task, Regression) else 1
        for part in (rows, rows[1:2]):
            (found,) = run_onnx(tmp_path / "out", [name], part)
            np.testing.assert_allclose(found, expected_of(model, name, part), atol=1e-4 * spread)
    assert differing > len(tasks) / 2  # equal predictions for all rows would hide a mistake
    assert TrainedOn.read(tmp_path / "out") is not None
    together = run_onnx(tmp_path / "out", ["linear", "open"], SENTENCES)
    np.testing.assert_allclose(together[1], expected_of(model, "open", SENTENCES), atol=1e-2)
    # A file that computes something else, here with another temperature, is not left behind.
    monkeypatch.setattr(export_heads, "write_onnx", lambda *of: shutil.copy(tmp_path / "out" / "model.onnx", of[-1]))
    model.tasks["linear"] = replace(CLASSES, temperature=1.0)
    with pytest.raises(RuntimeError, match="ONNX Runtime's outputs for linear differ by"):
        export_onnx_with_heads(model, tmp_path / "other", NOTHING)
    assert not (tmp_path / "other").exists()


def test_the_description_says_how_to_read_the_outputs(tiny_encoder):
    heads = HeadsConfig("separate", "joint", similarity_pairs="embeddings")
    found = export_heads.heads_description(model_of(tiny_encoder, heads))
    tasks = found["tasks"]
    read = {name: task["input"] for name, task in tasks.items()}
    assert (read["linear"], read["two"], read["cosine"]) == ("sentence", "joint_pair", "two_sentences")
    assert (found["max_length"], tasks["three"]["labels"]) == (24, ["0", "1", "2"])
    assert (tasks["tags"]["thresholds"], tasks["new-tags"]["thresholds"]) == ([0.2, 0.7], [0.5, 0.5])
    assert (tasks["open"]["range"], tasks["pair"]["text"]) == ([-30, 70], ["first", "second"])


def test_a_task_cannot_have_the_name_of_an_input(onnx, tiny_encoder, tmp_path):
    model = model_of(tiny_encoder, tasks=[replace(CLASSES, name="input_ids")])
    with pytest.raises(InputError, match="the task input_ids has the name of an input of the ONNX file"):
        export_onnx_with_heads(model, tmp_path / "out", NOTHING)


def test_tasks_that_read_more_than_beginnings_do_not_leave_as_onnx(onnx, tiny_encoder, tmp_path):
    model = model_of(tiny_encoder, tasks=[replace(CLASSES, long="windows")])
    with pytest.raises(InputError, match=r"tasks\.linear: long is windows; programs that use an ONNX file read only"):
        export_onnx_with_heads(model, tmp_path / "out", NOTHING)


@pytest.fixture(scope="module")
def course(onnx, one_layer, small_data, tmp_path_factory) -> tuple[Path, MultitaskModel, list[str]]:
    """The course's tasks in an export in 8 bits, the model, and what the command printed."""
    folder = tmp_path_factory.mktemp("course")
    model = model_of(one_layer, tasks=list(chosen_tasks(small_data, MAIN_TASKS).values()))
    with torch.no_grad():  # so that the page's sentences differ in class
        logits = model.head("sentiment", model.encoder.embed(model.encoder.tokenizer.encode(TEXTS)))
        model.heads["sentiment"].mlp.second.bias.sub_(logits.mean(dim=0))
    model.save(folder / "model")
    to = ["--to", "onnx", "--with-heads", "--data", str(small_data), "--int8"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["export", "--model", str(folder / "model"), "--output", str(folder / "FOLDER"), *to]) == 0
    return folder / "FOLDER", model, printed.getvalue().splitlines()


def test_the_documented_program_runs_without_this_project(course):
    page = (ROOT / "docs" / "how-to" / "export.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (program,) = [block for block in blocks if "InferenceSession" in block]
    folder, model, _ = course
    program += "import sys\nassert not {'torch', 'minbert', 'multitask'} & sys.modules.keys()\n"
    ran = subprocess.run([sys.executable, "-I", "-c", program], cwd=folder.parent, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    labels = [found.label for found in model.predict("sentiment", TEXTS)]
    assert len(set(labels)) > 1
    assert ran.stdout == f"{labels}\n"


def test_int8_is_smaller_and_its_score_is_that_of_its_predictions(course, small_data):
    folder, model, (checked, _, *rows, sizes, printed) = course
    assert re.fullmatch(r"checked: 96 rows; the largest difference is \d\.\de-\d\d", checked)
    before, after = map(float, re.findall(r"[\d.]+(?= MB)", sizes))
    assert after < before
    assert printed == str(folder)
    assert json.loads((folder / "tasks.json").read_text())["weights"] == "int8"
    dev = load_rows(chosen_tasks(small_data, ("sentiment",))["sentiment"], "dev")
    (int8,) = run_onnx(folder, ["sentiment"], dev.sentences[0])
    fp32 = expected_of(model, "sentiment", dev.sentences[0])
    scores = [np.mean(found.argmax(axis=1) == dev.labels) for found in (fp32, int8)]
    assert rows[0].split() == ["sentiment", *(f"{score:.4f}" for score in scores), f"{scores[0] - scores[1]:+.4f}"]
    assert 0 < np.abs(int8 - fp32).max() < 0.1


def test_an_undefined_score_is_called_so():
    assert loss_table({"stars": math.nan}, {"stars": 0.5}).split()[4:] == ["stars", "undefined", "0.5000", "undefined"]


def test_no_file_of_an_export_names_folders_data_or_users(tiny_encoder, small_data, tmp_path):
    home = tmp_path / "home" / "alice liddell" / "acme-secret"
    start = Path(shutil.copytree(tiny_encoder, home / "models" / "start"))
    local = {"name_or_path": str(start), "special_tokens_map_file": str(start / "special_tokens_map.json")}
    write_json(start / "tokenizer_config.json", {"model_max_length": 64, **local})
    data = Path(shutil.copytree(small_data, home / "customers-of-acme-secret"))
    config = FinetuneConfig(tasks=("similarity",), epochs=1, train_limit=16)
    run = finetune(str(start), data, config, RunOptions("cpu", "fp32", home / "runs")).folder
    folder = tmp_path / "exported"
    for moved in (run, Path(shutil.copytree(run, tmp_path / run.name))):  # its start weights are there, or not
        if moved is not run:
            shutil.rmtree(home)
        command = ["export", "--model", str(moved), "--output", str(folder), "--to", "sentence-transformers"]
        assert main(command) == 0
        written = {path.name: path.read_bytes() for path in folder.rglob("*.*")}
        expected = {"model_max_length": 64, "tokenizer_class": "BertTokenizer"}
        assert json.loads(written["tokenizer_config.json"]) == expected
        for secret in ("alice", "liddell", "acme", "customers", str(tmp_path)):
            for encoding in ("utf-8", "utf-32-le"):  # the second is numpy's
                assert [name for name, content in written.items() if secret.encode(encoding) in content] == []
