"""Export of one classification task as transformers' AutoModelForSequenceClassification.

A head here is linear, ReLU, linear on an embedding. BERT's and RoBERTa's classifiers have tanh in place of ReLU.
DistilBERT's classifier has the same layers on the first token's state, and DistilBERT's encoder is BERT's without token
types. One sentence has one token type, whose embedding is a constant here and is added to the positions' embeddings.
"""

import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from minbert.checkpoint import read_tensors, save_weights
from minbert.errors import InputError
from minbert.files import atomic_file, atomic_folder, write_json
from multitask.data.contamination import TrainedOn
from multitask.inference.export import keep_record, refuse_pruned
from multitask.models.multitask_model import MultitaskModel
from multitask.models.prediction_heads import Mlp, SentenceHead
from multitask.tasks.kinds import Classification
from multitask.tasks.task import Task

WEIGHTS = "model.safetensors"
DISTILBERT_NAMES = (  # replaced in this order
    ("encoder.layer", "transformer.layer"),
    ("attention.self.query", "attention.q_lin"),
    ("attention.self.key", "attention.k_lin"),
    ("attention.self.value", "attention.v_lin"),
    ("attention.output.dense", "attention.out_lin"),
    ("attention.output.LayerNorm", "sa_layer_norm"),
    ("intermediate.dense", "ffn.lin1"),
    ("output.dense", "ffn.lin2"),
    ("output.LayerNorm", "output_layer_norm"),
)
DISTILBERT_EPSILON = 1e-12  # of its layer norms; no setting of its config.json


def export_classifier(model: MultitaskModel, task_name: str | None, folder: Path, trained_on: TrainedOn) -> None:
    """Write a folder that transformers' AutoModelForSequenceClassification and AutoTokenizer can load.

    Its logits are the task's, divided by the task's temperature.

    Args:
        model: a fine-tuned model; on the CPU, in fp32.
        task_name: a classification task of sentences; None if the model has one task.
        folder: is written atomically.
        trained_on: is kept in the folder, for evaluations of the exported model.

    Raises:
        InputError: no such task, or transformers cannot represent it; the message says why.
    """
    task = _chosen(model, task_name)
    refuse_pruned(model.encoder)
    if reason := why_not(model, task):
        raise InputError(f"{task.name} cannot be a classifier of transformers: {reason}; use --to onnx --with-heads")
    assert isinstance(task, Classification)
    with atomic_folder(folder) as temporary:
        tensors = _encoder(model, temporary) | _head(model, task)
        with atomic_file(temporary / WEIGHTS) as path:
            safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
        write_json(temporary / "config.json", _config(model, task))
        model.tokenizer.save(temporary)
        write_json(temporary / "tokenizer_config.json", _tokenizer_config(model))
        keep_record(trained_on, temporary)


def why_not(model: MultitaskModel, task: Task) -> str | None:
    """Why transformers cannot represent a task of a model; None if it can."""
    config, width = model.encoder.config, model.encoder.config.hidden_size
    hidden = _hidden_size(model, task)
    if not isinstance(task, Classification) or task.pair:
        return f"its kind is {task.kind}, and only classification of one sentence can"
    if model.pooling != "cls":
        return f"its classifiers read the first token's state, and the model's pooling is {model.pooling}"
    if config.model_type != "bert":
        return f"its classifiers with such a head have a BERT encoder, and this is a {config.model_type}"
    if config.layer_norm_eps != DISTILBERT_EPSILON:
        return f"layer_norm_eps is {config.layer_norm_eps:g}, and transformers' DistilBERT has {DISTILBERT_EPSILON:g}"
    if hidden > width:
        return f"its heads have at most as many hidden units as the encoder, {width}, and this head needs {hidden}"
    return None


def _chosen(model: MultitaskModel, name: str | None) -> Task:
    if name is None and len(model.tasks) > 1:
        raise InputError(f"transformers' classifiers have one task; name it with --task: {', '.join(model.tasks)}")
    if name is not None and name not in model.tasks:
        raise InputError(f'the model has no task "{name}"; it has {", ".join(model.tasks)}')
    return model.tasks[name or next(iter(model.tasks))]


def _hidden_size(model: MultitaskModel, task: Task) -> int:
    """Number of hidden units that DistilBERT's head needs; a linear head needs two for each class."""
    if model.heads_config.sharing == "none":
        return 2 * task.outputs
    return model.heads_config.head_hidden_size or model.encoder.config.hidden_size


def _encoder(model: MultitaskModel, folder: Path) -> dict[str, Tensor]:
    """The encoder's tensors with DistilBERT's names; the folder is for their file with BERT's names."""
    path = folder / WEIGHTS
    save_weights(model.encoder.config, model.encoder.state_dict(), path)
    found = {name: tensor for name, tensor in read_tensors(path).items() if not name.startswith("pooler.")}
    types = found.pop("embeddings.token_type_embeddings.weight")
    found["embeddings.position_embeddings.weight"] += types[0]
    return {_distilbert_name(name): tensor for name, tensor in found.items()}


def _distilbert_name(name: str) -> str:
    for bert, distilbert in DISTILBERT_NAMES:
        name = name.replace(bert, distilbert)
    return f"distilbert.{name}"


@torch.no_grad()
def _head(model: MultitaskModel, task: Classification) -> dict[str, Tensor]:
    """The head's tensors with DistilBERT's names. Hidden units that the head does not have are zero."""
    head = model.heads[task.name]
    assert isinstance(head, SentenceHead)
    if isinstance(head.mlp, Mlp):
        first, second = head.mlp.first, head.mlp.second
        weights, biases = first.weight.data, first.bias.data
        outputs, shift = second.weight.data, second.bias.data
    else:  # dropout and a linear layer: x = ReLU(x) - ReLU(-x)
        linear = next(layer for layer in head.mlp.children() if isinstance(layer, nn.Linear))
        eye = torch.eye(task.outputs)
        weights, biases = torch.cat([linear.weight, -linear.weight]), torch.cat([linear.bias, -linear.bias])
        outputs, shift = torch.cat([eye, -eye], dim=1), torch.zeros(task.outputs)
    missing = model.encoder.config.hidden_size - len(biases)
    return {
        "pre_classifier.weight": pad(weights, (0, 0, 0, missing)),
        "pre_classifier.bias": pad(biases, (0, missing)),
        "classifier.weight": pad(outputs, (0, missing)) / task.temperature,
        "classifier.bias": shift / task.temperature,
    }


def _config(model: MultitaskModel, task: Classification) -> dict[str, Any]:
    config = model.encoder.config
    return {
        "model_type": "distilbert",
        "architectures": ["DistilBertForSequenceClassification"],
        "problem_type": "single_label_classification",
        "id2label": dict(enumerate(task.names)),
        "label2id": {name: index for index, name in enumerate(task.names)},
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_length,
        "dim": config.hidden_size,
        "n_layers": config.num_hidden_layers,
        "n_heads": config.num_attention_heads,
        "hidden_dim": config.intermediate_size,
        "activation": "gelu",
        "sinusoidal_pos_embds": False,
        "dropout": config.hidden_dropout_prob,
        "attention_dropout": config.attention_probs_dropout_prob,
        "seq_classif_dropout": model.heads_config.dropout,
        "initializer_range": config.initializer_range,
        "pad_token_id": config.pad_token_id,
    }


def _tokenizer_config(model: MultitaskModel) -> dict[str, Any]:
    """The checkpoint's own settings, without token types, and with the longest sentence of the model."""
    name = "tokenizer_config.json"
    settings = json.loads(model.tokenizer.companions.get(name, b"{}"))
    length = model.tokenizer.max_length if model.max_length is None else model.max_length
    return {**settings, "model_max_length": length, "model_input_names": ["input_ids", "attention_mask"]}
