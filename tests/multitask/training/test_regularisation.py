"""SMART and R-Drop on a small model: perturbations by finite differences, penalties by scipy, and what they leave."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit, softmax
from scipy.stats import entropy
from torch import Tensor, nn

from multitask.tasks import MAIN_TASKS
from multitask.training import regularisation
from multitask.training.regularisation import RDrop, Smart, ascended
from multitask.training.source import Losses
from tests.conftest import COURSE_TASKS

TASKS = {name: COURSE_TASKS[name] for name in MAIN_TASKS}
ROWS, WIDTH, WORDS = 4, 5, 3
RADIUS = 0.2
FLOATS = st.floats(-1e30, 1e30, width=64)


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


def build(toy: Toy, weight: float = 2.0, radius: float = RADIUS) -> Smart:
    return Smart(weight, radius, toy.words, TASKS, torch.device("cpu"))


def test_the_perturbation_is_a_step_of_ascent_by_finite_differences(monkeypatch):
    monkeypatch.setattr(regularisation, "NOISE", 0.05)
    toy = Toy()
    build(toy)(toy.losses)
    words, *perturbed = toy.read
    start, end = (values - words for values in perturbed)
    plain = toy.outputs(words)

    def apart(perturbation: torch.Tensor) -> float:
        outputs = toy.outputs(words + perturbation)
        return sum(symmetric_kl(name, outputs[name], plain[name]) for name in TASKS)

    gradient = torch.zeros_like(start)
    for place in np.ndindex(*start.shape):
        step = torch.zeros_like(start)
        step[place] = 1e-5
        gradient[place] = (apart(start + step) - apart(start - step)) / 2e-5
    largest = gradient.abs().max(dim=1, keepdim=True).values
    expected = (start + RADIUS * gradient / largest).clip(-RADIUS, RADIUS)
    torch.testing.assert_close(end, expected, rtol=1e-5, atol=1e-6)
    assert apart(end) > 3 * apart(start)
    assert (end.abs() == RADIUS).any()


@given(arrays(np.float64, (3, 4), elements=FLOATS), arrays(np.float64, (3, 4), elements=FLOATS), st.floats(1e-9, 10))
def test_the_perturbation_stays_within_the_ball(start, gradient, radius):
    found = ascended(torch.from_numpy(start), torch.from_numpy(gradient), radius)
    assert (found.abs() <= radius).all()
    flat = ascended(torch.from_numpy(start), torch.zeros(3, 4, dtype=torch.float64), radius)
    np.testing.assert_array_equal(flat, np.clip(start, -radius, radius))


def test_the_penalty_is_the_divergence_of_outputs_with_the_same_dropout():
    toy = Toy(dropout=0.4)
    torch.manual_seed(8)
    found = build(toy, weight=2.0)(toy.losses)
    after = torch.get_rng_state()
    words, _, perturbed = toy.read
    torch.manual_seed(8)
    kept = toy.dropout(torch.ones_like(words))  # 0, or the factor of what is kept
    clean, moved = toy.outputs(words * kept), toy.outputs(perturbed * kept)
    torch.randn_like(words)
    assert torch.equal(after, torch.get_rng_state())  # so that the next step has other dropout
    for name, term in found.terms.items():
        penalty = symmetric_kl(name, moved[name], clean[name])
        assert penalty > 1e-4
        assert found.watched[f"{name} smart"].item() == pytest.approx(penalty, rel=1e-6)
        loss = TASKS[name].loss(clean[name], toy.labels[name]).item()
        assert term.item() == pytest.approx(loss + 2.0 * penalty, rel=1e-6)
        torch.testing.assert_close(found.outputs[name], clean[name])


def test_the_gradient_flows_through_both_outputs():
    """With the perturbation held fixed, as in the paper's objective."""
    toy = Toy()
    gradients = toy.gradients(build(toy)(toy.losses))
    words, _, perturbed = toy.read
    perturbation = perturbed - words

    def objective() -> float:
        read = toy.words(toy.ids)
        clean, moved = toy.outputs(read), toy.outputs(read + perturbation)
        terms = (TASKS[name].loss(values, toy.labels[name]).item() for name, values in clean.items())
        return sum(terms) + 2.0 * sum(symmetric_kl(name, moved[name], clean[name]) for name in TASKS)

    parameters = [*toy.words.parameters(), *toy.heads.parameters()]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        place = np.unravel_index(int(gradient.abs().argmax()), gradient.shape)
        with torch.no_grad():
            parameter[place] += 1e-5
            above = objective()
            parameter[place] -= 2e-5
            below = objective()
            parameter[place] += 1e-5
        assert gradient[place].item() == pytest.approx((above - below) / 2e-5, rel=1e-5)


def test_the_loss_is_the_mean_of_two_passes_and_half_the_symmetric_divergence():
    toy, passes = Toy(dropout=0.4), []

    def compute() -> Losses:
        passes.append(toy.losses())
        return passes[-1]

    found = RDrop(0.7, TASKS)(compute)
    first, second = passes
    for name, term in found.terms.items():
        apart = symmetric_kl(name, first.outputs[name], second.outputs[name]) / 2
        mean = (first.terms[name].item() + second.terms[name].item()) / 2
        assert apart > 1e-3
        assert found.watched[f"{name} r_drop"].item() == pytest.approx(apart, rel=1e-9)
        assert term.item() == pytest.approx(mean + 0.7 * apart, rel=1e-9)
