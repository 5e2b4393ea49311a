"""How often Conjectures 1 to 3 of arXiv 2402.18281 (section 3.1) hold over random configurations of embeddings.

It also checks how often losses with a margin are above the contrastive loss (gradient dissipation paper, ICLR 2023,
section 1). The conjectures are about trained networks. The check is about embeddings only: does the paradigm's update
of freely movable unit vectors have the property? Each function below says how a conjecture becomes decidable.
Configurations come from `studies.gradient_paradigm.random_configurations`.
"""

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from minbert.files import write_json
from multitask.objectives import unit
from multitask.objectives.base import Objective, Pairs
from multitask.objectives.closed_forms import INFONCE, MAT, MET, MPT, RATIOS, Negatives
from multitask.runs.artefact import Weights
from multitask.stages.run_stage import OpenRun
from studies.gradient_paradigm import simulation_outcomes as outcomes
from studies.gradient_paradigm.random_configurations import Configurations, Tally, tangent
from studies.gradient_paradigm.simulate import SimulationConfig
from studies.gradient_paradigm.simulation_outcomes import Estimate, as_json, case_of
from studies.gradient_paradigm.simulations import DISSIPATIONS, PARADIGM, USED, run_simulations

ROUNDING = 1e-5
SLOPES = {MPT: 1, MET: 2, MAT: 1}
"""How fast the difference of two cosines can rise with the difference of a loss's measures."""
ENSURED_GAPS = {MPT: MPT.margin, MET: MET.margin**2 / 2, MAT: 1 - math.cos(MAT.margin * math.pi)}
"""The least gap of cosines, positive less hardest negative, that a loss of 0 ensures."""


def objectives(_config: SimulationConfig, _data: Path) -> dict[str, list[str]]:
    """The objectives with their parameters, which decide what is simulated."""
    return {"objectives": [str(objective) for objective in USED]}


def compute(_models: Sequence[Weights], _data: Path, config: SimulationConfig, run: OpenRun) -> None:
    """Simulate and check conjectures into a run's folder."""
    run_simulations(config).save(run.folder / "simulations.npz")
    write_json(run.folder / "conjectures.json", as_json(check_conjectures(config)))


def check_conjectures(config: SimulationConfig) -> list[Estimate]:
    """Estimates of all statements, for each case, batch size and dimension."""
    estimates: list[Estimate] = []
    for pairs, dim in product(outcomes.TRAINED_PAIRS, outcomes.TRAINED_DIMENSIONS):
        tally = Tally(config.seed, pairs, dim, config.training_trials)
        for drawn in tally:
            dissipation(drawn, config.training_steps, tally)
        estimates += tally.estimates()
    for pairs, dim in product(outcomes.PAIRS, outcomes.DIMENSIONS):
        tally = Tally(config.seed, pairs, dim, config.trials)
        for drawn in tally:
            anchor = Anchor(drawn)
            weight(anchor, tally)
            ratio(anchor, tally)
            bounds(drawn, tally)
        estimates += tally.estimates()
    return estimates


def dissipation(drawn: Configurations, steps: int, tally: Tally) -> None:
    """Conjecture 1: dissipation keeps the gap between μ_neg and μ_pos smaller than training without it.

    A batch is trained twice from the same start by the paradigm's update with weight 0.05 and ratio 1, for both views
    x ← unit(x − λ GD (Σ_j W_j y_j − y_i)): once with GD of the loss, once with GD = 1. The gap is the mean angle of
    negatives less the mean angle of positives. A batch counts if the two trainings differ. Batches take the step sizes
    λ in turn. The weaker statement compares the gaps after the last step, the stronger statement after every step.
    """
    turn = torch.arange(len(drawn.u)) % len(outcomes.STEP_SIZES)
    step_size = torch.tensor(outcomes.STEP_SIZES)[turn]
    without = trained_gaps(drawn, step_size, steps, None)
    for loss in DISSIPATIONS:
        gaps = trained_gaps(drawn, step_size, steps, loss)
        difference = gaps - without  # [steps + 1, trials]
        differs = difference.abs().amax(0) > ROUNDING
        found = {"start": gaps[0], "end": gaps[-1], "end_without": without[-1]}
        for place, size in enumerate(outcomes.STEP_SIZES):
            case, applies = case_of(loss, size), differs & (turn == place)
            tally.count(outcomes.GAP_AT_END, case, difference[-1] < 0, applies, found)
            tally.count(outcomes.GAP_THROUGHOUT, case, (difference <= ROUNDING).all(0), applies, found)


def trained_gaps(drawn: Configurations, step_size: Tensor, steps: int, loss: str | None) -> Tensor:
    """The gap before the first step and after every step. `loss` None is without dissipation  # [steps + 1, trials]."""
    u, v = drawn.u, drawn.v
    pairs = u.shape[1]
    diagonal = torch.eye(pairs, dtype=torch.bool)
    gaps = []
    for step in range(steps + 1):
        cosine = (u @ v.mT).clamp(-1, 1)  # [trials, pairs, pairs]
        angle = cosine.acos()
        positive = angle.diagonal(dim1=1, dim2=2)  # [trials, pairs]
        gaps.append((angle.sum((1, 2)) - positive.sum(1)) / (pairs * (pairs - 1)) - positive.mean(1))
        if step < steps:
            others = cosine.masked_fill(diagonal, -torch.inf)
            u, v = _moved(u, v, others, positive, step_size, loss), _moved(v, u, others.mT, positive, step_size, loss)
    return torch.stack(gaps)


def _moved(x: Tensor, y: Tensor, others: Tensor, positive: Tensor, step_size: Tensor, loss: str | None) -> Tensor:
    negatives = Negatives.of_cosines(others)
    gradient = (negatives.excess / PARADIGM.weight).softmax(-1) @ y - PARADIGM.ratio * y
    if loss is not None:
        gradient *= DISSIPATIONS[loss](positive, negatives)[..., None]
    return unit(x - step_size[:, None, None] * tangent(gradient, x))


class Anchor:
    """The first anchor of each configuration, with inner products of its candidates: its positive and its negatives."""

    def __init__(self, drawn: Configurations) -> None:
        anchor = drawn.u[:, :1]
        cosines = (drawn.v @ anchor.mT)[..., 0]  # [trials, pairs]
        candidates = tangent(drawn.v, anchor)
        self.products = candidates @ candidates.mT  # [trials, pairs, pairs], of the parts in the tangent plane
        self.positive, self.negatives = cosines[:, 0], cosines[:, 1:]
        self.hardest_cosine, self.hardest = self.negatives.max(-1)
        assert PARADIGM.dissipation is not None
        self.trained = self.positive - self.hardest_cosine < PARADIGM.dissipation
        """Whether the paradigm's gate lets the gradient through."""

    def weights(self, temperature: float) -> Tensor:
        """Softmax weights of the negatives  # [trials, negatives]."""
        return (self.negatives / temperature).softmax(-1)

    def comes_closer(self, weights: Tensor, ratio: Tensor, step_size: float) -> Tensor:
        """Whether unit(u − λ (Σ_j W_j v_j − r v_i)), all in the tangent plane, is closer to v_i than u was  # [trials].

        With d the step, the cosine to the positive rises from c to (c + d·v_i) / sqrt(1 + d·d). W: [trials, negatives],
        r: [trials].
        """
        coefficients = step_size * torch.cat([ratio[:, None], -weights], -1)[:, None]  # [trials, 1, pairs]
        towards = (coefficients @ self.products[..., :1])[:, 0, 0]
        square = (coefficients @ self.products @ coefficients.mT)[:, 0, 0]
        return towards > self.positive * square / (
            1 + (1 + square).sqrt()
        )  # avoids a difference of nearly equal numbers


def weight(anchor: Anchor, tally: Tally) -> None:
    """Conjecture 2: the hardest negative has a dominant position in the gradient.

    A negative's part in the gradient is the projection of W_j v_j on the direction of Σ_j W_j v_j, both without their
    part along the anchor, divided by the length of that sum. The parts add up to 1, as in the paper's statistics.
    Dominant means more than half, or more than any other negative's part. An anchor counts if the paradigm's gate lets
    its gradient through.
    """
    for temperature in outcomes.TEMPERATURES:
        weights = anchor.weights(temperature)
        parts = weights * (anchor.products[:, 1:, 1:] @ weights[..., None])[..., 0]  # [trials, negatives]
        parts /= parts.sum(-1, keepdim=True)
        own = parts.gather(1, anchor.hardest[:, None])[:, 0]
        found = {"part": own, "weight": weights.amax(-1), "largest_part": parts.amax(-1)}
        tally.count(outcomes.MAJORITY, f"{temperature:g}", own > 0.5, anchor.trained, found)
        tally.count(outcomes.LARGEST, f"{temperature:g}", own >= parts.amax(-1), anchor.trained, found)


def ratio(anchor: Anchor, tally: Tally) -> None:
    """Conjecture 3: the ratio meets Lemma 1's condition more often, and the anchor comes closer to its positive.

    The condition is on the ratio, the step size, and the angles to the positive and to the hardest negative. Which of
    two ratios meets it more often is decided on the anchors where exactly one of them does. Whether the anchor comes
    closer is decided by the step with all negatives, W at temperature 0.05, and the way back to the sphere. Whether the
    condition suffices is decided by the step with the hardest negative only, as in the lemma. An anchor counts if the
    paradigm's gate lets its gradient through.
    """
    alpha, beta = anchor.positive.acos(), anchor.hardest_cosine.acos()
    between = anchor.products[:, 0, 1:].gather(1, anchor.hardest[:, None])[:, 0] / (alpha.sin() * beta.sin())
    alone, together = one_hot(anchor.hardest, anchor.negatives.shape[1]).float(), anchor.weights(PARADIGM.weight)
    constants = {f"{value:g}": torch.full_like(alpha, value) for value in outcomes.CONSTANT_RATIOS}
    ratios = {**constants, **{name: RATIOS[name](alpha, beta) for name in outcomes.DYNAMIC_RATIOS}}
    for step_size in outcomes.STEP_SIZES:
        low, high = lemma_1_bounds(alpha, beta, between, step_size)
        met = {name: (low < value) & (value < high) for name, value in ratios.items()}
        for name, value in ratios.items():
            case = case_of(name, step_size)
            found = {"positive": alpha, "negative": beta, "between": between, "ratio": value, "low": low, "high": high}
            tally.count(outcomes.CONDITION, case, met[name], anchor.trained, found)
            if name != "1":
                tally.count(outcomes.MORE_OFTEN, case, met[name], anchor.trained & (met[name] != met["1"]), found)
            suffices = anchor.comes_closer(alone, value, step_size)
            tally.count(outcomes.SUFFICIENT, case, suffices, anchor.trained & met[name], found)
            tally.count(outcomes.CLOSER, case, anchor.comes_closer(together, value, step_size), anchor.trained, found)


def lemma_1_bounds(positive: Tensor, negative: Tensor, cosine: Tensor, step_size: float) -> tuple[Tensor, Tensor]:
    """Between which ratios r a step of the anchor brings it closer to its positive (arXiv 2402.18281, Lemma 1).

    The anchor moves by λ(r v − w) less the part along itself, v its positive and w a negative. In the tangent plane
    at the anchor v lies at distance sin(α), w at sin(β), and the angle between them is φ. The new anchor is closer to
    v there than the old one was iff

        |r − 1/λ − sin β cos φ / sin α| < sqrt(1/λ² − sin²β sin²φ / sin²α).

    Lengths are the tangent plane's: the way back to the sphere is left out. Returns both bounds, NaN where no ratio
    will do, of the angles α and β, the cosine of φ ([...] each), and λ.
    """
    relative = negative.sin() / positive.sin()
    centre = 1 / step_size + relative * cosine
    half = (1 / step_size**2 - relative.square() * (1 - cosine.square())).sqrt()
    return centre - half, centre + half


def bounds(drawn: Configurations, tally: Tally) -> None:
    """Losses with a margin are upper bounds of the contrastive loss.

    Without constants: the loss is at least τ times InfoNCE, which puts both on the scale of cosines. With constants:
    InfoNCE is at most c / τ times the loss, plus log(1 + (N − 1) e^(−k/τ)) with N pairs. The second bound must hold:
    with x_i = max_j s_ij − s_ii, InfoNCE is at most the mean of log(1 + (N − 1) e^(x_i/τ)), and each x_i is at most c
    times the anchor's part of the loss, less k. c is how fast cosines can rise (`SLOPES`), and k is the gap that the
    margin ensures (`ENSURED_GAPS`).
    """

    def values(objective: Objective) -> Tensor:
        return torch.vmap(lambda u, v: objective.loss(Pairs(u, v)))(drawn.u, drawn.v)  # [trials]

    contrastive, always = values(INFONCE), torch.ones(len(drawn.u), dtype=torch.bool)
    for objective, slope in SLOPES.items():
        loss = values(objective)
        constant = math.log1p((drawn.u.shape[1] - 1) * math.exp(-ENSURED_GAPS[objective] / INFONCE.temperature))
        found = {"infonce": contrastive, "loss": loss}
        multiple = slope / INFONCE.temperature * loss
        tally.count(outcomes.BOUND, objective.name, loss >= INFONCE.temperature * contrastive, always, found)
        tally.count(
            outcomes.BOUND_WITH_CONSTANTS, objective.name, contrastive <= multiple + constant + ROUNDING, always, found
        )
