"""Encoders of other architectures: values equal those of transformers, and which models need sentence-transformers."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import torch
from transformers import AutoModel, DistilBertConfig, DistilBertModel

from minbert.errors import InputError
from minbert.files import write_json
from multitask.base.device import PROCESSOR
from multitask.base.runs import Weights
from multitask.cli.main import main
from multitask.data.contamination import TrainedOn, hash_sentences
from multitask.models.model_folder import resolve_pooling
from multitask.models.multitask_model import load_model
from multitask.models.sentence_encoder import SentenceEncoder, load_encoder
from multitask.models.sentence_transformers_encoder import SentenceTransformersEncoder, further_modules
from multitask.stages.training_run import StartModel
from multitask.training.settings import SentencesConfig

pytest.importorskip("sentence_transformers", minversion="6")
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Router, Transformer

SENTENCES = ["A man is playing a guitar.", "", "two dogs run in the snow " * 9, "a man", "?", "good time " * 40]
EXACT = {"device": "cpu", "precision": "fp32"}


@pytest.fixture(scope="module")
def distilled(tiny_encoder, tmp_path_factory) -> Path:
    """A DistilBERT, whose layers are not BERT's."""
    folder = tmp_path_factory.mktemp("distilled")
    shutil.copy(tiny_encoder / "tokenizer.json", folder)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"})
    torch.manual_seed(0)
    config = DistilBertConfig(
        vocab_size=600, dim=24, n_heads=4, n_layers=2, hidden_dim=48, max_position_embeddings=64, initializer_range=0.1
    )
    DistilBertModel(config).save_pretrained(folder)
    return folder


def transformer_and_pooling(tiny_encoder: Path, mode: str = "mean") -> list[torch.nn.Module]:
    transformer = Transformer(str(tiny_encoder))
    transformer.tokenizer.pad_token = "[PAD]"
    return [transformer, Pooling(transformer.get_embedding_dimension(), mode)]


def test_modules_of_another_architecture_and_older_tokenizers_are_computed_by_sentence_transformers(
    distilled, tmp_path
):
    scaled = [Transformer(str(distilled)), Pooling(24, "mean"), Normalize()]
    SentenceTransformer(modules=scaled).save(str(tmp_path / "scaled"))
    encoder = load_encoder(tmp_path / "scaled", **EXACT)
    assert isinstance(encoder, SentenceTransformersEncoder)
    np.testing.assert_allclose(np.linalg.norm(encoder.encode(SENTENCES), axis=1), 1, atol=1e-5)


def test_weights_in_half_precision_are_computed_in_fp32_and_bf16_is_close(distilled, tmp_path):
    expected = load_encoder(distilled, **EXACT).encode(SENTENCES)
    AutoModel.from_pretrained(distilled).half().save_pretrained(shutil.copytree(distilled, tmp_path / "half"))
    embeddings = load_encoder(tmp_path / "half", **EXACT).encode(SENTENCES)
    np.testing.assert_allclose(embeddings, expected, atol=1e-2)
    assert abs(embeddings - embeddings.astype(np.float16)).max() > 0
    coarse = load_encoder(distilled, device="cpu", precision="bf16").encode(SENTENCES)
    assert coarse.dtype == np.float32
    assert 1e-5 < abs(coarse - expected).max() < 0.05


def test_identity_is_of_what_decides_an_embedding(distilled, tmp_path):
    def identity(folder: Path, pooling: str = "auto") -> str:
        return load_encoder(folder, pooling=pooling, device="cpu").identity

    copied = shutil.copytree(distilled, tmp_path / "copy")
    write_json(copied / "evaluation-sts.json", {})  # a file of ours in the model's folder
    assert identity(copied) == identity(distilled)
    different = [identity(distilled), identity(distilled, "cls")]
    tensors = safetensors.torch.load_file(copied / "model.safetensors")
    tensors["transformer.layer.0.ffn.lin1.bias"][0] += 1e-6
    safetensors.torch.save_file(tensors, copied / "model.safetensors", metadata={"format": "pt"})
    assert len({*different, identity(copied)}) == 3


def test_what_a_model_was_trained_on_and_how_it_computes_are_known_whoever_computes_it(hub, distilled, tmp_path):
    copied = shutil.copytree(distilled, tmp_path / "copy")
    TrainedOn.of_rows([hash_sentences(SENTENCES)]).keep(copied)
    hub.repositories["someone/recorded"] = {"main": files_of(copied)}
    for name in (str(copied), "someone/recorded"):
        encoder = SentenceTransformersEncoder(name, None, "auto", "cpu", "bf16", reason="")
        assert encoder.trained_on(name).sentences_seen(SENTENCES).all()
        assert encoder.settings.items() >= {"device": "cpu", "precision": "bf16"}.items()


def test_further_modules_are_computed(tiny_encoder, tmp_path):
    torch.manual_seed(0)
    dense = Dense(32, 8, activation_function=torch.nn.Tanh())
    SentenceTransformer(modules=[*transformer_and_pooling(tiny_encoder), dense]).save(str(tmp_path))
    encoder = load_encoder(tmp_path, **EXACT)
    assert isinstance(encoder, SentenceTransformersEncoder)
    pooled = SentenceEncoder.load(tiny_encoder, pooling="mean", **EXACT).encode(SENTENCES, convert_to_tensor=True)
    with torch.no_grad():
        expected = dense.linear(pooled).tanh()
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)
    encoder.model.pop(1)
    encoder.model.save(str(tmp_path / "without"))
    assert refusal(tmp_path / "without", pooling="cls").startswith(f"{tmp_path / 'without'}: the model has no pooling")


@pytest.mark.parametrize("further", [[], [Normalize()], [Dense(32, 8)]], ids=["none", "norm", "dense"])
def test_a_training_says_which_modules_it_leaves_out_and_dev_scores_without_them_are_refused(
    further, tiny_encoder, tmp_path, caplog
):
    SentenceTransformer(modules=[*transformer_and_pooling(tiny_encoder), *further]).save(str(tmp_path))
    caplog.clear()
    StartModel.load(Weights(str(tmp_path)), SentencesConfig(), PROCESSOR)
    dense = any(isinstance(module, Dense) for module in further)
    assert [message.partition(";")[0] for message in caplog.messages] == [
        f"{tmp_path / 'modules.json'}: has the modules Transformer, Pooling, Dense"
    ] * dense
    with pytest.raises(InputError, match="Pooling, Dense, so the encoder alone") if dense else nullcontext():
        load_model(tmp_path, {})


@pytest.mark.parametrize(("mode", "further"), [("mean", [Normalize()]), ("cls", [])], ids=["mean", "cls"])
def test_a_folder_that_sentence_transformers_wrote_is_our_own_to_compute(tiny_encoder, tmp_path, mode, further):
    reference = SentenceTransformer(modules=[*transformer_and_pooling(tiny_encoder, mode), *further], device="cpu")
    reference.max_seq_length = 20
    reference.save(str(tmp_path))
    encoder = load_encoder(tmp_path, **EXACT)
    assert isinstance(encoder, SentenceEncoder)
    assert encoder.pooling == mode
    expected = reference.encode(SENTENCES, normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode(SENTENCES, normalize=True), expected, atol=1e-5)


def test_given_words_take_the_place_of_the_models_own(tiny_encoder, tmp_path):
    prompts = {"query": "a man ", "document": "the dogs "}
    modules = transformer_and_pooling(tiny_encoder)
    SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name="query").save(str(tmp_path))
    encoder, peer = load_encoder(tmp_path, **EXACT), SentenceTransformer(str(tmp_path), device="cpu")
    assert isinstance(encoder, SentenceTransformersEncoder)
    texts = list(filter(None, SENTENCES))  # an empty one gets no words here
    own, given = (peer.encode(texts, prompt_name=name) for name in prompts)
    np.testing.assert_allclose(encoder.encode(texts), own, atol=1e-6)
    np.testing.assert_allclose(encoder.encode(texts, prompt="the dogs {text}"), given, atol=1e-6)
    assert abs(own - given).max() > 1e-3


def test_texts_that_the_library_cuts_are_counted(tiny_encoder, tmp_path, caplog):
    model = SentenceTransformer(
        modules=transformer_and_pooling(tiny_encoder), prompts={"query": "a man "}, default_prompt_name="query"
    )
    model.max_seq_length = 7
    model.save(str(tmp_path))
    encoder = load_encoder(tmp_path, **EXACT)
    for prompt, cut in ((None, 2), ("{text}", 1)):  # the model's own words have tokens, too
        encoder.encode(["a man a man", "a man a man a man a man"], prompt=prompt)
        encoder.counts.warn("a.txt")
        assert caplog.messages[-1] == f"a.txt: cut {cut} of 2 texts to 7 tokens"


def test_a_mean_that_leaves_out_the_models_own_words_counts_given_ones_and_says_so(tiny_encoder, tmp_path, caplog):
    model = SentenceTransformer(
        modules=transformer_and_pooling(tiny_encoder), prompts={"query": "a man "}, default_prompt_name="query"
    )
    model.set_pooling_include_prompt(False)
    model.save(str(tmp_path))
    encoder, peer = load_encoder(tmp_path, **EXACT), SentenceTransformer(str(tmp_path), device="cpu")
    assert "leaves out its own default prompt, but counts given words" in caplog.text
    np.testing.assert_allclose(encoder.encode(SENTENCES), own := peer.encode(SENTENCES), atol=1e-6)
    assert abs(encoder.encode(SENTENCES, prompt="a man {text}") - own).max() > 1e-3


def test_words_that_a_mean_counts_though_the_model_would_leave_them_out_are_warned_of(tiny_encoder, tmp_path, caplog):
    for left_out in (False, True):
        caplog.clear()
        model = SentenceTransformer(modules=transformer_and_pooling(tiny_encoder), prompts={"query": "a man "})
        model.set_pooling_include_prompt(not left_out)
        model.save(str(tmp_path))
        encoder, peer = load_encoder(tmp_path, **EXACT), SentenceTransformer(str(tmp_path), device="cpu")
        assert ("its mean leaves out prompts, but counts given words" in caplog.text) == left_out
        texts = [text for text in SENTENCES if text]  # no words are put around an empty text
        difference = abs(encoder.encode(texts, prompt="a man {text}") - peer.encode(texts, prompt="a man "))
        assert (difference.max() > 1e-3) == left_out


def test_words_of_a_template_take_the_place_of_the_models_own(tiny_encoder, tmp_path, monkeypatch):
    """A model that adds nothing by default finds the same; of columns without words, it finds other texts."""
    modules, found = transformer_and_pooling(tiny_encoder), {}
    words = ["dog", "band", "man", "film", "play"]
    rows = [f"{one} {other},{other} {one}" for one in words for other in words if one != other]
    (tmp_path / "pairs.csv").write_text("\n".join(["a,b", *rows]))
    prompts = {"query": "a man plays a film for a good cat ", "nothing": ""}
    for default in prompts:
        folder, work = tmp_path / default, tmp_path / f"work {default}"
        SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name=default).save(str(folder))
        work.mkdir()
        monkeypatch.chdir(work)
        model = ["--model", str(folder), "--device", "cpu"]
        for a, b in (("a", "b"), ("the dogs {a}", "{b} .")):
            assert main(["embed", "../pairs.csv", "a.npy", "--column", a, *model]) == 0
            assert main(["search", "a.npy", "../pairs.csv", "--column", b, "--output", "found.csv", *model]) == 0
            found[default, a] = [Path(name).read_bytes() for name in ("a.npy", "found.csv")]
        assert main(["mine", "../pairs.csv", "mined.csv", "--text", a, b, "--margin", "0", *model]) == 0
        found[default, a].append(Path("mined.csv").read_bytes())
    assert found["query", a] == found["nothing", a]
    assert all(one != other for one, other in zip(found["query", "a"], found["nothing", "a"], strict=True))


def change(name: str, **settings: object) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / name
        content = json.loads(path.read_text()) if path.is_file() else {}
        write_json(path, content | settings)

    return apply


OBSTACLES = {
    "pools by max": change("1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_max_tokens=True),
    "pools by cls and mean": change("1_Pooling/config.json", pooling_mode=["cls", "mean"]),
    "do_lower_case is True": change("sentence_bert_config.json", do_lower_case=True),
    "sentence_roberta_config.json: do_lower_case is True": change("sentence_roberta_config.json", do_lower_case=True),
    "default_prompt_name is 'query'": change("config_sentence_transformers.json", default_prompt_name="query"),
    "modules.json: expected a list of modules": lambda folder: write_json(folder / "modules.json", [{"type": "x"}]),
    "config.json: no such file": lambda folder: (folder / "config.json").unlink(),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_which_models_are_foreign(tiny_encoder, tmp_path, obstacle):
    folder = shutil.copytree(tiny_encoder, tmp_path / "model")
    assert further_modules(folder) is None
    types = [("Transformer", ""), ("Pooling", "1_Pooling")]
    write_json(folder / "modules.json", [{"type": f"sentence_transformers.models.{t}", "path": p} for t, p in types])
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True})
    assert further_modules(folder) is None
    OBSTACLES[obstacle](folder)
    reason = further_modules(folder)
    assert reason is not None
    assert obstacle in reason
    assert str(folder) in reason
    with pytest.raises(InputError, match=re.escape(f"{folder}")):  # its numbers would be other ones
        SentenceEncoder.load(folder, **EXACT)
    if "pools" in obstacle:  # a training could not tell what is meant either
        with pytest.raises(InputError, match=obstacle):
            resolve_pooling("auto", folder)
        assert resolve_pooling("mean", folder) == SentenceEncoder.load(folder, pooling="mean", **EXACT).pooling


# Refusals.


@pytest.mark.parametrize("sentences", [[("a man", "a dog")], ["a man", None], [3.5], ["\ud800"]], ids=str)
def test_what_is_no_text_is_refused_by_both_encoders(distilled, sentences):
    foreign = SentenceTransformersEncoder(str(distilled), None, "auto", **EXACT, reason="")
    for encoder in (foreign, SentenceEncoder.load(distilled, **EXACT)):
        with pytest.raises(InputError, match=r"expected text|TextEncodeInput"):
            encoder.encode(sentences)
        with pytest.raises(InputError, match=r'prompt is "query: "; expected {text}'):
            encoder.encode([], prompt="query: ")


@pytest.mark.parametrize("damage", [{"num_hidden_layers": 2**63}, {"num_attention_heads": -1}, {"vocab_size": "600"}])
def test_a_damaged_bert_is_not_given_to_another_library(tiny_encoder, tmp_path, damage):
    folder = shutil.copytree(tiny_encoder, tmp_path / "model")
    change("config.json", **damage)(folder)
    [name] = damage
    assert f"{folder / 'config.json'}: {name} is" in refusal(folder)


def refusal(name: Path | str, **options: str) -> str:
    with pytest.raises(InputError) as caught:
        load_encoder(name, **options, **EXACT)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("package", ["transformers", "sentence_transformers"])
def test_without_a_package_the_error_says_why_and_how(package, distilled, tiny_encoder, tmp_path, monkeypatch):
    folder = distilled
    if package == "sentence_transformers":
        folder = tmp_path / "dense"
        SentenceTransformer(modules=[*transformer_and_pooling(tiny_encoder), Dense(32, 8)]).save(str(folder))
    monkeypatch.setitem(sys.modules, package, None)
    message = refusal(folder)
    assert message.startswith(str(folder))
    assert "which is not installed; install with: " in message
    assert isinstance(load_encoder(tiny_encoder, **EXACT), SentenceEncoder)


def test_pickled_weights_are_refused(distilled, tiny_encoder, tmp_path):
    folder = shutil.copytree(distilled, tmp_path / "pickled")
    torch.save(safetensors.torch.load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    load_encoder(folder, **EXACT)
    (folder / "model.safetensors").unlink()
    assert refusal(folder).startswith(f"{folder}: no *.safetensors; save the model")
    dense = Dense(32, 8)
    SentenceTransformer(modules=[*transformer_and_pooling(tiny_encoder), dense]).save(
        str(tmp_path / "dense"), safe_serialization=False
    )
    assert "2_Dense/pytorch_model.bin: pickled weights are not loaded" in refusal(tmp_path / "dense").replace("\\", "/")


@pytest.mark.parametrize("place", ["", "0_Transformer"])
def test_weights_under_other_names_are_refused(place, distilled, tmp_path):
    """transformers would draw new ones at random, and only log it."""
    folder = tmp_path / "model"
    SentenceTransformer(modules=[Transformer(str(distilled)), Pooling(24, "mean"), Normalize()]).save(str(folder))
    if place:  # as older versions of the library wrote it
        (folder / place).mkdir()
        for path in [path for path in folder.glob("*.*") if path.is_file() and path.name != "modules.json"]:
            path.rename(folder / place / path.name)
        modules = json.loads((folder / "modules.json").read_text())
        modules[0]["path"] = place
        write_json(folder / "modules.json", modules)
    assert load_encoder(folder, **EXACT).encode("a man").shape == (24,)
    file = folder / place / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    renamed = {name.replace("transformer.layer", "encoder.block"): tensor for name, tensor in weights.items()}
    safetensors.torch.save_file(renamed, file, {"format": "pt"})
    with pytest.raises(InputError, match=r"model: the weights lack transformer\.layer\.0\."):
        load_encoder(folder, **EXACT)


def test_each_encoder_of_a_model_needs_its_weights(distilled, tmp_path):
    folder = tmp_path / "routed"
    parts = {name: [Transformer(str(distilled)), Pooling(24, "mean")] for name in ("query", "document")}
    SentenceTransformer(modules=[Router.for_query_document(parts["query"], parts["document"])]).save(str(folder))
    assert load_encoder(folder, **EXACT).encode("a man").shape == (24,)
    *_, file = sorted(folder.rglob("model.safetensors"))
    weights = safetensors.torch.load_file(file)
    safetensors.torch.save_file({f"another.{name}": tensor for name, tensor in weights.items()}, file, {"format": "pt"})
    with pytest.raises(InputError, match="routed: the weights lack "):
        load_encoder(folder, **EXACT)


def test_code_that_comes_with_a_model_is_not_run(distilled, tmp_path):
    folder = shutil.copytree(distilled, tmp_path / "own-code")
    (folder / "theirs.py").write_text("raise SystemExit('this must not run')\n")
    change("config.json", model_type="theirs", auto_map={"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"})(
        folder
    )
    assert refusal(folder).startswith(f"{folder}: transformers cannot load it (")


# The hub.


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_hub_model_is_fetched_without_its_pickles(hub, distilled, monkeypatch):
    hub.repositories["someone/distilled"] = {"main": files_of(distilled) | {"pytorch_model.bin": b"never fetched"}}
    embeddings = load_encoder("someone/distilled", **EXACT).encode(SENTENCES)
    np.testing.assert_allclose(embeddings, load_encoder(distilled, **EXACT).encode(SENTENCES), atol=1e-6)
    assert not any("pytorch_model.bin" in path for path in hub.requested)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hub.requested.clear()
    np.testing.assert_array_equal(load_encoder("someone/distilled", **EXACT).encode(SENTENCES), embeddings)
    assert hub.requested == []
