"""A model of three words a row with a head of two classes, one of three, and a number, as regularisers see it."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax
from scipy.stats import entropy
from torch import Tensor, nn

from multitask.tasks.declarations import COURSE, load_tasks
from multitask.training.trainable import Losses

TASKS = {name: load_tasks(COURSE)[name] for name in ("sentiment", "paraphrase", "similarity")}
ROWS, WIDTH, WORDS = 4, 5, 3


class Toy:
    """Float64, with dropout after the word embeddings. `losses` is a regulariser's `compute`."""

    def __init__(self, dropout: float = 0.0) -> None:
        torch.manual_seed(3)
        self.words = nn.Embedding(9, WIDTH).double()
        self.dropout = nn.Dropout(dropout)
        heads = {name: nn.Linear(WORDS * WIDTH, task.outputs) for name, task in TASKS.items()}
        self.heads = nn.ModuleDict(heads).double()
        self.ids = torch.randint(9, (ROWS * WORDS,))
        self.labels = {"sentiment": torch.tensor([0, 4, 2, 1.0]), "paraphrase": torch.tensor([1, 0, 0, 1.0]).double()}
        self.labels["similarity"] = torch.tensor([0.5, 5, 3, 1]).double()
        self.read: list[Tensor] = []  # word embeddings of every pass, [tokens, width]

    def losses(self) -> Losses:
        words = self.words(self.ids)
        self.read.append(words.detach())
        outputs = self.outputs(self.dropout(words))
        terms = {name: TASKS[name].loss(values, self.labels[name]) for name, values in outputs.items()}
        return Losses(terms, tokens=ROWS * WORDS, outputs=outputs)

    def outputs(self, words: Tensor) -> dict[str, Tensor]:
        rows = torch.tanh(words).view(ROWS, -1)
        return {name: head(rows).squeeze(1) for name, head in self.heads.items()}

    def gradients(self, losses: Losses) -> list[Tensor]:
        parameters = [*self.words.parameters(), *self.heads.parameters()]
        return list(torch.autograd.grad(torch.stack([*losses.terms.values()]).sum(), parameters))


def symmetric_kl(task: str, first: Tensor, second: Tensor) -> float:
    """KL both ways by scipy, mean over rows; of numbers the mean squared difference."""
    a, b = first.detach().numpy(), second.detach().numpy()
    if task == "similarity":
        return float(np.mean((a - b) ** 2))
    p, q = (softmax(x, axis=1) if task == "sentiment" else np.stack([expit(x), expit(-x)], axis=1) for x in (a, b))
    return float(np.mean(entropy(p, q, axis=1) + entropy(q, p, axis=1)))


def cross_entropy(logits: NDArray[np.float64], labels: NDArray[np.float64]) -> float:
    return float(-log_softmax(logits, axis=1)[np.arange(len(labels)), labels.astype(int)].mean())
