"""Encoders of other architectures: values are transformers', trainings resume to the bit, and exports compute alike."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from minbert.errors import InputError
from minbert.files import write_json
from multitask.base.device import PROCESSOR
from multitask.base.options import RunOptions
from multitask.data.contamination import TrainedOn
from multitask.data.examples import tokenise
from multitask.models.model_folder import write_pooling
from multitask.models.multitask_model import load_model, outputs
from multitask.models.sentence_encoder import SentenceEncoder, load_encoder
from multitask.models.transformers_model import TransformersModel
from multitask.service.served_model import load_served
from multitask.stages.ensemble import ensemble
from multitask.stages.evaluate import evaluate_on_dev
from multitask.stages.finetune import finetune
from multitask.stages.mlm import mlm
from multitask.stages.pretrain import pretrain
from multitask.stages.prune import prune
from multitask.stages.settings import FinetuneConfig
from multitask.stages.settings_of_pretraining import MlmConfig, PretrainConfig
from multitask.stages.settings_without_training import EnsembleConfig, PruneConfig
from multitask.training.settings import OptimizerConfig, RegularisationConfig
from multitask.use.export import export_sentence_transformers, export_transformers
from tests.conftest import slow_after
from tests.multitask.stages.conftest import cut_before_step, history, weights

transformers = pytest.importorskip("transformers", minversion="5")

SENTENCES = ["A man is playing a guitar.", "two dogs run in the snow " * 9, "a man", "?", "good time " * 40]
EXACT: Any = {"device": "cpu", "precision": "fp32"}
FAST = OptimizerConfig(learning_rate=1e-3)
SIZES = {
    "vocab_size": 600,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
SHORT = SIZES | {"max_position_embeddings": 64}
OFFSET = SIZES | {"max_position_embeddings": 66, "pad_token_id": 1}  # positions begin behind the padding's
CONFIGS = {
    "deberta-v2": transformers.DebertaV2Config(**SHORT, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "modernbert": transformers.ModernBertConfig(
        **SHORT, pad_token_id=0, bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3, local_attention=8
    ),
    "t5": transformers.T5Config(vocab_size=600, d_model=24, d_kv=6, d_ff=48, num_layers=2, num_heads=4),
    "mpnet": transformers.MPNetConfig(**OFFSET),
    "roberta-prelayernorm": transformers.RobertaPreLayerNormConfig(**OFFSET),
    # Its token types would be words.
    "gpt2": transformers.GPT2Config(vocab_size=600, n_embd=24, n_layer=2, n_head=4, n_positions=64, pad_token_id=0),
}


def theirs(config: Any) -> Any:
    """transformers' class of a configuration: of T5, the encoder alone."""
    return (
        transformers.T5EncoderModel
        if config.model_type == "t5"
        else getattr(transformers, type(config).__name__.replace("Config", "Model"))
    )


@pytest.fixture(scope="module")
def folders(tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random model of each architecture, as transformers saves it."""
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tiny_encoder / "tokenizer.json"), pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
    found = {}
    for name, config in CONFIGS.items():
        found[name] = folder = tmp_path_factory.mktemp(name)
        torch.manual_seed(0)
        config.initializer_range = 0.1
        theirs(config)(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return found


@pytest.mark.parametrize("pooling", ["auto", "cls"])
@pytest.mark.parametrize("name", CONFIGS)
def test_embeddings_are_those_of_transformers(name, pooling, folders):
    encoder = SentenceEncoder.load(folders[name], pooling=pooling, **EXACT)
    model = theirs(CONFIGS[name]).from_pretrained(folders[name]).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[name])
    assert encoder.max_length == (512 if name == "t5" else 64)
    for sentence, found in zip(SENTENCES, encoder.encode(SENTENCES), strict=True):
        ids = tokenizer(sentence, truncation=True, max_length=encoder.max_length, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            states = model(input_ids=ids).last_hidden_state[0]
        expected = states[0] if pooling == "cls" else states.mean(dim=0)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("fields", [{"pad_token_id": None}, {}], ids=str)
def test_a_configuration_without_a_padding_token_gives_the_same_embeddings(fields, folders, monkeypatch):
    encoder = SentenceEncoder.load(folders["modernbert"], **EXACT)
    expected = encoder.encode(SENTENCES)
    monkeypatch.setattr(encoder.model, "theirs", SimpleNamespace(**fields))
    np.testing.assert_array_equal(encoder.encode(SENTENCES), expected)


def test_an_encoder_that_sentence_transformers_embeds_is_scored_without_heads(folders, small_data, tmp_path):
    folder = shutil.copytree(folders["modernbert"], tmp_path / "model")
    kinds = {"Transformer": "", "Pooling": "1_Pooling"}
    write_json(folder / "modules.json", [{"type": f"x.{kind}", "path": path} for kind, path in kinds.items()])
    write_pooling(folder, "cls", 24)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 7})
    encoder = load_model(folder, {}).encoder
    assert (encoder.pooling, encoder.max_length) == ("cls", 7)
    found = evaluate_on_dev(str(folder), small_data, options=RunOptions(runs=tmp_path, **EXACT)).evaluation()
    assert found["geometry"]["uniformity"] < 0


@pytest.mark.parametrize("name", ["deberta-v2", "t5"])
def test_logits_after_fine_tuning_are_those_of_transformers_and_two_layers(name, folders, run_stage):
    config = FinetuneConfig(tasks=("sentiment",), epochs=1, train_limit=16, batch_size=8, optimizer=FAST)
    folder = run_stage(finetune, config, start=folders[name]).model_folder()
    model, read = load_model(folder, {}).on(PROCESSOR), theirs(CONFIGS[name]).from_pretrained(folder).eval()
    layers = load_file(folder / "heads.safetensors")
    one, first, two, second = (
        layers[f"sentiment.mlp.{n}.{of}"] for n in ("first", "second") for of in ("weight", "bias")
    )
    tokens = tokenise(SENTENCES, model.encoder.tokenizer, model.encoder.max_length)
    for number, found in enumerate(outputs(model, ["sentiment"], [tokens])["sentiment"]):
        ids = torch.from_numpy(tokens[number].astype(np.int64))[None]
        with torch.no_grad():
            states = read(input_ids=ids).last_hidden_state[0]
        inner = (states.mean(dim=0) @ one.T + first).clamp(min=0)
        np.testing.assert_allclose(found, inner @ two.T + second, atol=1e-5)


def test_a_soup_keeps_a_share_of_its_start(folders, run_stage, small_data, tmp_path):
    config = FinetuneConfig(tasks=("sentiment",), epochs=1, train_limit=16, batch_size=8, optimizer=FAST)
    run = run_stage(finetune, config, start=folders["modernbert"])
    mix = EnsembleConfig("soup", keep_start=0.3)
    mixed = ensemble([str(run.folder)], small_data, mix, RunOptions(runs=tmp_path, **EXACT)).model_folder()
    of = [load_file(folder / "model.safetensors") for folder in (mixed, folders["modernbert"], run.model_folder())]
    for found, before, after in ((part[name] for part in of) for name in of[0]):
        expected = (0.3 * before.double() + 0.7 * after.double()).float()
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", CONFIGS)
def test_dropout_is_replaced_everywhere(name, folders):
    encoder = SentenceEncoder.load(folders[name], keep_layers=True, **EXACT)
    ids, before = encoder.tokenizer.encode(SENTENCES), encoder.embed(encoder.tokenizer.encode(SENTENCES))
    for probability, equal in ((0.0, True), (0.5, False)):
        encoder.model.set_dropout(probability)
        encoder.model.train()
        assert torch.allclose(encoder.embed(ids), before, atol=1e-5) == equal
    assert torch.equal(encoder.eval().embed(ids), before)
    encoder.model.to("meta").set_dropout(0.1)
    assert encoder.model.model.device.type == "meta"


def test_dropout_that_is_written_as_a_whole_number_is_replaced(tiny_encoder, tmp_path, caplog):
    shape = SHORT | {"embedding_size": 16, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    transformers.AlbertModel(transformers.AlbertConfig(**shape)).save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if (tiny_encoder / name).is_file():
            shutil.copy(tiny_encoder / name, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}'
    )
    encoder = SentenceEncoder.load(tmp_path, keep_layers=True, **EXACT)
    ids = encoder.tokenizer.encode(SENTENCES)
    assert not encoder.model.has_dropout
    encoder.model.set_dropout(0.5)
    assert encoder.model.has_dropout
    encoder.train()
    assert not torch.equal(encoder.embed(ids), encoder.embed(ids))


@pytest.mark.parametrize(
    "config",
    [
        transformers.DistilBertConfig(dim=24, n_heads=4, n_layers=1, hidden_dim=48, dropout=0.0, attention_dropout=0.0),
        transformers.ElectraConfig(**SHORT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    ],
    ids=lambda config: config.model_type,
)
def test_dropout_of_their_heads_is_none_of_the_encoder(config):
    assert not TransformersModel(theirs(config)(config), 64).has_dropout


def test_equal_dropout_views_are_warned_of(folders, run_stage, caplog):
    config = PretrainConfig(batch_size=8, train_limit=8, select="last", optimizer=FAST)
    said = "the two views of a sentence are equal, as the encoder has no dropout"
    run_stage(pretrain, config, start=folders["modernbert"])
    assert said in caplog.text
    caplog.clear()
    run_stage(pretrain, replace(config, encoder_dropout=0.1), start=folders["modernbert"])
    assert said not in caplog.text


@pytest.mark.parametrize("name", slow_after(1, ["modernbert", "t5"]))
def test_a_training_lowers_the_loss_and_resumes_to_the_same_bits(name, folders, run_stage):
    config = FinetuneConfig(tasks=("similarity",), epochs=3, batch_size=16, encoder_dropout=0.2, optimizer=FAST)
    whole = run_stage(finetune, config, folder="whole", start=folders[name])
    with cut_before_step(5):
        run_stage(finetune, config, folder="cut", start=folders[name], save_every=0.0)
    torch.manual_seed(99)
    resumed = run_stage(finetune, config, folder="cut", start=folders[name])
    assert weights(resumed) == weights(whole)
    losses = [line["training"]["similarity"] for line in history(whole)]
    assert losses[-1] < losses[0]
    saved = transformers.AutoConfig.from_pretrained(whole.model_folder()).to_dict()
    dropped = {key: value for key, value in CONFIGS[name].to_dict().items() if "drop" in key}
    assert {key: saved[key] for key in dropped} == dropped


def test_a_pretrained_model_is_exported_to_sentence_transformers(folders, run_stage, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers", minversion="6")
    config = PretrainConfig(sources=("quora",), epochs=1, batch_size=8, train_limit=16, optimizer=FAST)
    run = run_stage(pretrain, config, start=folders["modernbert"])
    encoder = SentenceEncoder.load(run.folder, **EXACT)
    export_sentence_transformers(encoder, tmp_path / "exported", "name", normalize=False, trained_on=TrainedOn())
    peer = sentence_transformers.SentenceTransformer(str(tmp_path / "exported"), device="cpu")
    np.testing.assert_allclose(encoder.encode(SENTENCES), peer.encode(SENTENCES), atol=1e-5)
    with pytest.raises(
        InputError, match=r"; serve, explore and probe take a run itself, or its export --to transformers$"
    ):
        load_served(tmp_path / "exported", **EXACT)
    export_transformers(encoder, tmp_path / "served", TrainedOn())
    for name in (run.folder, tmp_path / "served"):  # as the error advises
        served = load_served(name, **EXACT)
        np.testing.assert_allclose(served.encoder.encode(SENTENCES), encoder.encode(SENTENCES), atol=1e-5)


def test_what_transformers_cannot_do_is_refused(folders, tiny_encoder, tmp_path):
    encoder = SentenceEncoder.load(folders["mpnet"], keep_layers=True, **EXACT)
    with pytest.raises(InputError, match="does not recompute the layers of mpnet"):
        encoder.embed(encoder.tokenizer.encode(["a"]), recompute=True)
    with pytest.raises(InputError, match="weights in bf16 are not saved"):
        SentenceEncoder.load(folders["mpnet"], device="cpu", precision="bf16").save(tmp_path / "rounded")
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    bart = transformers.BartConfig(vocab_size=600, max_position_embeddings=64, **sizes)
    transformers.BartModel(bart).save_pretrained(tmp_path)
    shutil.copy(tiny_encoder / "tokenizer.json", tmp_path)
    with pytest.raises(InputError, match="its encoder alone is not there for bart"):
        SentenceEncoder.load(tmp_path, pooling="mean", **EXACT)


def test_what_transformers_cannot_compute_in_bf16_is_refused(folders, tiny_encoder, tmp_path):
    """DeBERTa's first version, and a folder whose model has no vocabulary."""
    shutil.copytree(folders["deberta-v2"], tmp_path, dirs_exist_ok=True)
    deberta = transformers.DebertaConfig(**SHORT, relative_attention=True, pos_att_type=["p2c", "c2p"])
    transformers.DebertaModel(deberta).save_pretrained(tmp_path)
    encoder = SentenceEncoder.load(tmp_path, device="cpu", precision="bf16")
    with pytest.raises(
        InputError, match=r"^transformers cannot compute a deberta in bf16 \(.*\); take --precision fp32$"
    ):
        encoder.encode(SENTENCES)
    assert SentenceEncoder.load(tmp_path, **EXACT).encode(SENTENCES).shape == (5, 24)
    sizes = {name: size for name, size in SHORT.items() if name != "vocab_size"}
    transformers.CanineModel(transformers.CanineConfig(**sizes)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="transformers cannot load it \\('CanineConfig' object has no attribute"):
        SentenceEncoder.load(tmp_path, **EXACT)


def test_positions_that_transformers_leaves_out_are_refused(tiny_encoder, tmp_path):
    shutil.copytree(tiny_encoder, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text()) | {"position_embedding_type": "relative_key"}
    write_json(tmp_path / "config.json", config)
    for modules in (False, True):
        if modules:
            kinds = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense"}
            write_json(tmp_path / "modules.json", [{"type": f"x.{kind}", "path": path} for kind, path in kinds.items()])
        with pytest.raises(InputError, match=r"config\.json: position_embedding_type is 'relative_key'; this encoder"):
            load_encoder(tmp_path, pooling="mean", **EXACT)


REFUSED = {
    "prune": (prune, PruneConfig(score="magnitude")),
    "mlm": (mlm, MlmConfig()),
    "smart": (finetune, FinetuneConfig(regularisation=RegularisationConfig(smart_weight=1.0))),
    "layers": (finetune, FinetuneConfig(optimizer=OptimizerConfig(layer_decay=0.9))),
    "freeze": (finetune, FinetuneConfig(freeze="1")),
    "embeddings": (pretrain, PretrainConfig(sources=("quora",), freeze_embeddings=True)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_needs_bert_is_refused(case, folders, run_stage):
    stage, config = REFUSED[case]
    with pytest.raises(InputError, match=r"(a modernbert|needs a BERT or RoBERTa)"):
        run_stage(stage, config, start=folders["modernbert"])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "transformers cannot load it"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer.json; save the tokenizer"),
    ],
)
def test_a_damaged_folder_is_refused(damage, message, folders, tmp_path):
    damage(copied := Path(shutil.copytree(folders["modernbert"], tmp_path / "copy")))
    with pytest.raises(InputError, match=rf"^{re.escape(str(copied))}: .*{message}"):
        SentenceEncoder.read(copied)
