"""Other libraries compute the same vectors from an exported folder, and it keeps the record of its training data."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from minbert.config import BertConfig
from minbert.download_checkpoint import BUNDLED
from minbert.errors import InputError
from minbert.model import BertModel
from minbert.tokenizer import load_tokenizer
from multitask import SentenceEncoder
from multitask.cli.main import main
from multitask.data.contamination import RECORD, TrainedOn
from multitask.evaluation.embedding_suites import KnownEncoder, evaluate_suites
from multitask.inference.export import export_onnx, export_sentence_transformers, export_transformers
from multitask.models.sentence_encoder import load_encoder
from multitask.runs.artefact import Artefact
from multitask.runtime.options import RunOptions
from multitask.stages.finetune import finetune
from multitask.stages.settings.finetune import FinetuneConfig
from multitask.tasks.declarations import load_tasks
from multitask.tasks.read_examples import load_rows
from tests.multitask.evaluation.folder import write

SENTENCES = ["A man is playing a guitar.", "", "two dogs run in the snow " * 60, "ein Hund", "?"]
EXACT = {"device": "cpu", "precision": "fp32"}
NOTHING = TrainedOn()


@pytest.fixture(scope="module", params=["mean", "cls"])
def encoder(request, tiny_encoder: Path) -> SentenceEncoder:
    loaded = SentenceEncoder.load(tiny_encoder, pooling=request.param, **EXACT)
    loaded.max_length = 24
    return loaded


@pytest.fixture(scope="module")
def pruned(tiny_encoder: Path, tmp_path_factory) -> SentenceEncoder:
    """An encoder whose layers differ in size."""
    folder, tokenizer = tmp_path_factory.mktemp("pruned"), load_tokenizer(str(tiny_encoder))
    shape = BertConfig.from_file(tiny_encoder / "config.json").values()
    sizes = {"layer_heads": [1, 4], "layer_intermediate_sizes": [64, 5]}
    BertModel(BertConfig.from_dict({"model_type": "bert"} | shape | sizes)).save(folder)
    tokenizer.save(folder)
    return SentenceEncoder.load(folder, **EXACT)


def test_transformers_has_the_same_states(tiny_encoder, tmp_path):
    encoder = SentenceEncoder.load(tiny_encoder, **EXACT)
    export_transformers(encoder, tmp_path / "out", NOTHING)
    assert (tmp_path / "out" / RECORD).is_file()  # which these libraries ignore
    model, tokenizer = (kind.from_pretrained(tmp_path / "out") for kind in (AutoModel, AutoTokenizer))
    encoded = tokenizer(SENTENCES[0], return_tensors="pt")
    with torch.no_grad():
        theirs = model.eval()(**encoded).last_hidden_state
        ours = encoder.model(encoded["input_ids"]).last_hidden_state
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalised"])
def test_sentence_transformers_has_the_same_vectors(encoder, tmp_path, normalize):
    from sentence_transformers import SentenceTransformer

    export_sentence_transformers(encoder, tmp_path / "out", "# A card\n", normalize, NOTHING)
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert theirs.max_seq_length == 24
    assert theirs.similarity_fn_name == "cosine"
    ours = encoder.encode(SENTENCES, normalize=normalize)
    np.testing.assert_allclose(theirs.encode(SENTENCES), ours, atol=1e-5)
    assert (tmp_path / "out" / "README.md").read_text() == "# A card\n"
    assert (tmp_path / "out" / RECORD).is_file()  # which these libraries ignore
    back = load_encoder(tmp_path / "out", **EXACT)
    assert isinstance(back, SentenceEncoder)
    np.testing.assert_array_equal(back.encode(SENTENCES), encoder.encode(SENTENCES))


def test_the_bundled_model_leaves_as_it_came(tmp_path):
    from sentence_transformers import SentenceTransformer

    bundled = SentenceEncoder.load(BUNDLED, **EXACT)
    export_sentence_transformers(bundled, tmp_path / "out", "", True, NOTHING)
    ours = bundled.encode(SENTENCES, normalize=True)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "out")).encode(SENTENCES), ours, atol=1e-5)


def run_onnx(folder: Path, sentences: list[str]) -> np.ndarray:
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


def test_onnx_runtime_has_the_same_vectors(encoder, tmp_path):
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    normalize = encoder.pooling == "mean"
    export_onnx(encoder, tmp_path / "out", normalize, NOTHING)
    expected = encoder.encode(SENTENCES, normalize=normalize)
    np.testing.assert_allclose(run_onnx(tmp_path / "out", SENTENCES), expected, atol=1e-4)
    for row, sentence in enumerate(SENTENCES):
        np.testing.assert_allclose(run_onnx(tmp_path / "out", [sentence])[0], expected[row], atol=1e-4)
    assert TrainedOn.read(tmp_path / "out") is not None
    many = run_onnx(tmp_path / "out", SENTENCES * 9)
    np.testing.assert_allclose(many, np.tile(expected, (9, 1)), atol=1e-4)


def test_a_pruned_encoder_leaves_as_onnx_only(pruned, tmp_path):
    for export, *settings in ((export_transformers,), (export_sentence_transformers, "", False)):
        with pytest.raises(InputError, match="pruned, and transformers cannot represent that; use --to onnx"):
            export(pruned, tmp_path / "out", *settings, NOTHING)
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    export_onnx(pruned, tmp_path / "out", False, NOTHING)
    np.testing.assert_allclose(run_onnx(tmp_path / "out", SENTENCES), pruned.encode(SENTENCES), atol=1e-4)


def test_an_onnx_model_that_computes_something_else_is_not_left_behind(tiny_encoder, tmp_path, monkeypatch):
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    encoder = SentenceEncoder.load(tiny_encoder, pooling="mean", **EXACT)
    monkeypatch.setattr(encoder, "encode", lambda texts, normalize: np.zeros((len(texts), 32), np.float32))
    with pytest.raises(RuntimeError, match="ONNX Runtime's embeddings differ by"):
        export_onnx(encoder, tmp_path / "out", True, NOTHING)
    assert not any(tmp_path.iterdir())


def test_without_onnx_the_error_says_how_to_get_it(tiny_encoder, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else found(name))
    monkeypatch.setitem(sys.modules, "onnx", sys)
    with pytest.raises(InputError, match=r'--to onnx needs onnxscript; install with: pip install -e "\.\[onnx\]"'):
        export_onnx(SentenceEncoder.load(tiny_encoder, **EXACT), tmp_path / "out", False, NOTHING)
    assert not any(tmp_path.iterdir())


def test_the_command(tiny_encoder, tmp_path, capsys):
    from sentence_transformers import SentenceTransformer

    options = ["--to", "sentence-transformers", "--pooling", "mean", "--normalize"]
    assert main(["export", "--model", str(tiny_encoder), "--output", str(tmp_path / "out"), *options]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}\n"
    expected = SentenceEncoder.load(tiny_encoder, pooling="mean", **EXACT).encode(SENTENCES, normalize=True)
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "out")).encode(SENTENCES), expected, atol=1e-5)


@pytest.mark.parametrize("to", ["transformers", "sentence-transformers"])
def test_only_an_earlier_export_is_replaced(tiny_encoder, tmp_path, monkeypatch, capsys, to):
    out, mine = tmp_path / "out", tmp_path / "mine"
    arguments = ["export", "--model", str(tiny_encoder), "--to", to, "--output"]
    out.mkdir()  # an empty folder is as good as none
    assert main([*arguments, str(out)]) == 0
    (out / "vocab.txt").unlink(missing_ok=True)
    assert main([*arguments, str(out)]) == 0
    capsys.readouterr()
    mine.mkdir()
    (mine / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(mine)
    for refused in (mine, tmp_path / "file", tiny_encoder, "."):
        assert main([*arguments, str(refused)]) == 2
        assert capsys.readouterr().err.startswith(f"error: --output {refused}: ")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert main([*arguments, "."]) == 2  # it would be renamed under the feet of the shell
    assert (mine / "thesis.tex").read_text() == (tmp_path / "file").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "mine", "out"]


# What it was trained on.


@pytest.fixture(scope="module")
def run(tiny_encoder: Path, small_data: Path, tmp_path_factory) -> Artefact:
    options = RunOptions("cpu", "fp32", tmp_path_factory.mktemp("runs"))
    return finetune(str(tiny_encoder), small_data, FinetuneConfig(tasks=("similarity",), epochs=1), options)


@pytest.mark.parametrize("to", ["transformers", "sentence-transformers"])
def test_an_export_keeps_what_its_run_was_trained_on(run, tiny_encoder, tmp_path, to):
    out = tmp_path / "out"
    assert main(["export", "--model", str(run.folder), "--output", str(out), "--to", to]) == 0
    ours, exported = TrainedOn.read(run.folder), TrainedOn.of_folder(out, str(out))
    assert len(exported.pairs) > 0
    np.testing.assert_array_equal(exported.sentences, ours.sentences)
    np.testing.assert_array_equal(exported.pairs, ours.pairs)
    assert ours.unknown == (f"the training data of {tiny_encoder} is not recorded",)
    assert exported.unknown == (f"the training data of {tiny_encoder.name} is not recorded",)  # without its path


@pytest.mark.parametrize("to", ["transformers", "sentence-transformers"])
def test_an_export_evaluates_as_its_run(run, small_data, tmp_path, to):
    rows = []
    for split in ("train", "dev"):
        first, second = load_rows(load_tasks(small_data)["similarity"], split).sentences
        rows += [f"news\tnews\t2015\t{i}\t{i / 4}\t{first[i]}\t{second[i]}" for i in range(16)]
    write(tmp_path / "STS" / "STSBenchmark" / "sts-test.csv", rows)
    assert main(["export", "--model", str(run.folder), "--output", str(tmp_path / "out"), "--to", to]) == 0
    expected, found = (
        evaluate_suites(["sts"], KnownEncoder.load(str(name), pooling="mean", **EXACT), tmp_path)["sts"].tasks[
            "STSBenchmark"
        ]
        for name in (run.folder, tmp_path / "out")
    )
    assert found == expected
    assert (found.rows, found.rows_seen) == (32, 16)


@pytest.mark.parametrize("to", ["transformers", "sentence-transformers"])
def test_an_export_without_its_record_is_not_left_behind(tiny_encoder, tmp_path, monkeypatch, to):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TrainedOn, "keep", full)
    assert main(["export", "--model", str(tiny_encoder), "--output", str(tmp_path / "out"), "--to", to]) == 1
    assert not any(tmp_path.iterdir())


def test_rounded_weights_are_not_exported(tiny_encoder, tmp_path):
    rounded = SentenceEncoder.load(tiny_encoder, device="cpu", precision="bf16")
    with pytest.raises(InputError, match='load the encoder with precision="fp32"'):
        export_transformers(rounded, tmp_path / "out", NOTHING)
    assert not (tmp_path / "out").exists()
