"""The learning rate of each layer against its formula."""

import torch
from torch import nn

from minbert.config import BertConfig
from minbert.model import BertModel
from multitask.training.config import OptimizerConfig
from multitask.training.optimizer_and_clipping import build_adamw

SHAPE = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=12, num_attention_heads=2, intermediate_size=8)


def test_each_layer_has_a_share_of_the_rate_of_the_layer_above_it() -> None:
    module = nn.ModuleDict({"encoder": BertModel(SHAPE), "heads": nn.Linear(8, 2)})
    adamw = build_adamw(module, OptimizerConfig(1e-3, 1e-2, layer_decay=0.85))
    rates = {id(parameter): group["lr"] for group in adamw.param_groups for parameter in group["params"]}
    for name, parameter in module.named_parameters():
        expected = 1e-2 if name.startswith("heads.") else 1e-3
        if name.startswith("encoder.layers."):
            expected *= 0.85 ** (11 - int(name.split(".")[2]))
        elif name.startswith("encoder.embeddings."):
            expected *= 0.85**12
        torch.testing.assert_close(rates[id(parameter)], expected, rtol=1e-12, atol=0)
    assert len({*rates.values()}) == 14  # twelve layers, the embeddings and the heads


def test_without_decay_the_groups_are_those_of_one_rate() -> None:
    module = nn.ModuleDict({"encoder": BertModel(SHAPE)})
    groups = build_adamw(module, OptimizerConfig(1e-3)).param_groups
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(1e-3, 0.01), (1e-3, 0.0)]
