"""Prediction heads on sentence embeddings, and the layers that paraphrase and similarity share.

Source: the multi-task report, section 4.2: a 2-layer MLP with dropout before each linear layer; similarity is the
cosine of the two transformed embeddings, paraphrase a bilinear form of the two.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from minbert.errors import InputError
from multitask.models.settings import HeadsConfig, PairInput
from multitask.tasks.kinds import Cosine, PairRegression
from multitask.tasks.task import Task


class Mlp(nn.Module):
    """dropout, linear, ReLU, dropout, linear. [rows, inputs] -> [rows, outputs]."""

    def __init__(self, inputs: int, hidden: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, outputs)

    def forward(self, embeddings: Tensor) -> Tensor:
        return self.second(self.dropout(torch.relu(self.first(self.dropout(embeddings)))))


class Residual(nn.Module):
    """x + transform(x), where the transform starts at zero. [rows, width] -> [rows, width]."""

    def __init__(self, transform: Mlp) -> None:
        super().__init__()
        self.transform = transform
        nn.init.zeros_(transform.second.weight)
        nn.init.zeros_(transform.second.bias)

    def forward(self, embeddings: Tensor) -> Tensor:
        return embeddings + self.transform(embeddings)


class SentenceHead(nn.Module):
    """An MLP on one embedding, of a sentence or a jointly encoded pair: [rows, outputs]; [rows] of one output.

    Bounded outputs, shares of a task's range, are squashed into 0..1.
    """

    def __init__(self, mlp: nn.Module, bounded: bool = False) -> None:
        super().__init__()
        self.mlp = mlp
        self.bounded = bounded

    def forward(self, embeddings: Tensor) -> Tensor:
        outputs = self.mlp(embeddings)
        outputs = outputs.squeeze(1) if outputs.shape[1] == 1 else outputs
        return outputs.sigmoid() if self.bounded else outputs


class CosineHead(nn.Module):
    """Cosine of the two transformed embeddings, [rows]."""

    def __init__(self, transform: nn.Module) -> None:
        super().__init__()
        self.transform = transform

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return cosine_similarity(self.transform(first), self.transform(second))


class BilinearHead(nn.Module):
    """The logits x^T W_k y + b_k of the two transformed embeddings, [rows, outputs]; [rows] of one output."""

    def __init__(self, transform: nn.Module, size: int, outputs: int) -> None:
        super().__init__()
        self.transform = transform
        self.form = nn.Linear(size, size * outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(() if outputs == 1 else outputs))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        mapped = self.form(self.transform(second))  # [rows, outputs * size]
        if self.bias.dim() == 0:
            return (self.transform(first) * mapped).sum(dim=1) + self.bias
        forms = mapped.unflatten(1, (len(self.bias), -1))  # [rows, outputs, size]
        return (self.transform(first)[:, None] * forms).sum(dim=2) + self.bias


def pair_features(first: Tensor, second: Tensor) -> Tensor:
    """|x-y|, x*y and x+y (InferSent's features made symmetric), [..., hidden] each -> [..., 3 * hidden]."""
    return torch.cat([(first - second).abs(), first * second, first + second], dim=-1)


class FeatureHead(SentenceHead):
    """An MLP on the features of two embeddings, [rows, outputs]; [rows] of one output."""

    def forward(self, first: Tensor, second: Tensor) -> Tensor:  # type: ignore[override]  # reads two embeddings
        return super().forward(pair_features(first, second))


class NumberHead(FeatureHead):
    """A feature head plus a scale times the cosine of the two embeddings, [rows].

    The scale begins at 1: of few rows, an MLP alone would not learn how similar the start weights find two sentences.
    """

    def __init__(self, mlp: nn.Module, bounded: bool = False) -> None:
        super().__init__(mlp, bounded)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:  # type: ignore[override]  # reads two embeddings
        return super().forward(first, second) + self.scale * cosine_similarity(first, second)


def pair_input(task: Task, config: HeadsConfig) -> PairInput:
    """How the head of a pair task reads the two sentences. Raises InputError for windows of both as one input."""
    own = config.similarity_pairs if isinstance(task, Cosine) else None
    if (found := own or config.pairs) == "joint" and task.long == "windows":
        raise task.problem("long is windows, but pairs are read as one input; take head or middle, or other heads")
    return found


class Heads(nn.ModuleDict):
    """Heads by the names of their tasks. A name may also be an attribute of modules, such as `type`."""

    def __setitem__(self, name: str, head: nn.Module) -> None:
        self._modules[name] = head


def build_heads(tasks: list[Task], width: int, config: HeadsConfig) -> Heads:
    """One head for each task, by the task's name.

    Raises InputError if heads should share layers, but do not read pairs as two embeddings; see also `pair_input`.
    """
    for pairs in (pair_input(task, config) for task in tasks if task.pair):
        if pairs != "embeddings" and config.sharing not in ("separate", "shared_first_layer"):
            raise InputError(
                f"heads: sharing={config.sharing} needs pairs=embeddings; with pairs={pairs} use sharing=separate"
            )
    hidden = config.head_hidden_size or width
    size = width if config.residual else hidden  # of a transformed embedding
    shared = Mlp(width, hidden, size, config.dropout)

    def transform() -> nn.Module:
        if config.sharing == "none":
            return nn.Identity()
        own = shared if config.sharing == "shared" else Mlp(width, hidden, size, config.dropout)
        if config.sharing == "shared_first_layer":
            own.first = shared.first
        return Residual(own) if config.residual else own

    def head(task: Task) -> nn.Module:
        bounded = isinstance(task, Cosine)
        if not task.pair:
            if config.sharing == "none":
                return SentenceHead(nn.Sequential(nn.Dropout(config.dropout), nn.Linear(width, task.outputs)))
            return SentenceHead(Mlp(width, hidden, task.outputs, config.dropout))
        pairs = pair_input(task, config)
        if pairs == "features":
            kind = NumberHead if isinstance(task, PairRegression) else FeatureHead
            return kind(Mlp(3 * width, hidden, task.outputs, config.dropout), bounded)
        if pairs == "joint":
            return SentenceHead(Mlp(width, hidden, task.outputs, config.dropout), bounded)
        if bounded or (config.sharing == "none" and task.outputs == 1):
            return CosineHead(transform())
        return BilinearHead(transform(), size, task.outputs)

    return Heads({task.name: head(task) for task in tasks})
