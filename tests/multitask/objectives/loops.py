"""Every formula as loops over i and j in float64, slow and obvious on purpose. The fast code must give the same.

Scalars are torch scalars, so that autograd differentiates the loop; `.detach()` is sg in the formulas.
If `false[i][j]`, positive j is not a negative of anchor i. Within one view, (i, j) and (j, i) are the same pair.
`hard[i]` has the numbers and unit vectors of the hard negatives of anchor i; those of the other view's rows are none.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from multitask.objectives import Objective

Rows = list[Tensor]
Mask = list[list[bool]]
Hard = list[list[tuple[int, Tensor]]]
ZERO = torch.zeros((), dtype=torch.float64)


def loop_loss(
    objective: Objective,
    anchors: Tensor,
    positives: Tensor,
    hard_negatives: Tensor | None = None,
    labels: Tensor | None = None,
    false_negatives: Tensor | None = None,
    false_hard_negatives: Tensor | None = None,
) -> Tensor:
    n = len(anchors)
    false = [[False] * n for _ in range(n)] if false_negatives is None else false_negatives.tolist()
    u, v = normalised(anchors), normalised(positives)
    w = [] if hard_negatives is None else normalised(hard_negatives)
    false_hard = [[False] * len(w)] * n if false_hard_negatives is None else false_hard_negatives.tolist()
    hard = [[(k, x) for k, x in enumerate(w) if not false_hard[i][k]] for i in range(n)]
    if labels is not None:
        loss = LABELLED[objective.name](objective, u, v, labels.tolist(), false)
    else:
        loss = LOOPS[objective.name](objective, u, v, false, hard)
    return loss + 0 * (anchors.sum() + positives.sum())  # differentiable even if every row was cut


def normalised(x: Tensor) -> Rows:
    return [row / row.square().sum().sqrt() if bool((row != 0).any()) else row / 1.0 for row in x]


def dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum()


def mean(values: list[Tensor]) -> Tensor:
    return sum(values, ZERO) / len(values)


def log_sum_exp(values: list[Tensor]) -> Tensor:
    return torch.log(sum((torch.exp(value) for value in values), ZERO))


def negatives(i: int, n: int, false: Mask) -> list[int]:
    return [j for j in range(n) if j != i and not false[i][j]]


def transposed(false: Mask) -> Mask:
    return [list(column) for column in zip(*false, strict=True)]


def unordered(false: Mask) -> Mask:
    n = len(false)
    return [[false[i][j] or false[j][i] for j in range(n)] for i in range(n)]


def infonce(o: Objective, u: Rows, v: Rows, false: Mask, hard: Hard) -> Tensor:
    temperature = 1 / o.scale if o.name == "mnrl" else o.temperature
    own_weight = 0.0 if o.name == "mnrl" else o.hard_negative_weight
    losses = []
    for i in range(len(u)):
        positive = dot(u[i], v[i])
        if o.name == "arccon":
            positive = torch.cos(torch.arccos(positive.clamp(-1 + 1e-16, 1 - 1e-16)) + o.angle)
        logits = [positive / temperature]
        logits += [dot(u[i], v[j]) / temperature for j in negatives(i, len(v), false)]
        logits += [dot(u[i], w) / temperature + (own_weight if k == i else 0.0) for k, w in hard[i]]
        losses.append(log_sum_exp(logits) - logits[0])
    return mean(losses)


def of_anchor(i: int, others: Rows, false: Mask, hard: Hard) -> Rows:
    """The negatives of anchor i among the other rows, and its hard ones."""
    return [others[j] for j in negatives(i, len(others), false)] + [w for _, w in hard[i]]


def margin(o: Objective, u: Rows, v: Rows, false: Mask, hard: Hard) -> Tensor:
    losses = []
    for i in range(len(u)):
        others = of_anchor(i, v, false, hard)
        excess = -torch.ones(())
        if others and o.name == "mpt":
            excess = max(dot(u[i], x) for x in others) - dot(u[i], v[i]) + o.margin
        if others and o.name == "met":
            own, *d = [(2 - 2 * dot(u[i], y)).clamp_min(1e-4).sqrt() for y in (v[i], *others)]
            excess = own - min(d) + o.margin
        if others and o.name == "mat":
            own, *theta = [torch.arccos(dot(u[i], y).clamp(-1 + 1e-16, 1 - 1e-16)) for y in (v[i], *others)]
            excess = own - min(theta) + o.margin * math.pi
        losses.append(excess if excess > 0 else ZERO)
    return mean(losses)


def dcl(o: Objective, u: Rows, v: Rows, false: Mask, hard: Hard) -> Tensor:
    losses = []
    for i in range(len(u)):
        others = of_anchor(i, v, false, hard)
        loss = -dot(u[i], v[i]) / o.temperature
        if others:
            loss = loss + log_sum_exp([dot(u[i], x) / o.temperature for x in others])
        if o.name == "dcl_positive" and (not others or loss < 0):
            loss = ZERO
        losses.append(loss)
    return mean(losses)


def align_uniform(o: Objective, u: Rows, v: Rows, false: Mask, hard: Hard) -> Tensor:
    distances = [(x - y).norm() ** o.alpha for x, y in zip(u, v, strict=True)]
    spread = ZERO
    for x, mine in ((u, hard), (v, none(hard))):
        pairs = pairs_within(x, false, mine)
        kernel = [torch.exp(-o.t * (one - other).square().sum()) for one, other in pairs]
        if kernel:
            spread = spread + torch.log(mean(kernel)) / 2
    return (1 - o.uniformity_weight) * mean(distances) + o.uniformity_weight * (2 * o.t + spread)


def cosine(o: Objective, u: Rows, v: Rows, labels: list[float], false: Mask) -> Tensor:
    return mean([(dot(u[i], v[i]) - labels[i]) ** 2 for i in range(len(u))])


def cosent(o: Objective, u: Rows, v: Rows, labels: list[float], false: Mask) -> Tensor:
    cosines, n = [dot(x, y) for x, y in zip(u, v, strict=True)], range(len(u))
    compared = [o.scale * (cosines[i] - cosines[j]) for i in n for j in n if labels[i] < labels[j]]
    return log_sum_exp([ZERO, *compared])


def quora_pairs(o: Objective, u: Rows, v: Rows, labels: list[float], false: Mask) -> Tensor:
    losses = []
    for i in range(len(u)):
        own = dot(u[i], v[i]) / o.temperature
        row = [own] + [dot(u[i], v[j]) / o.temperature for j in negatives(i, len(v), false)]
        column = [own] + [dot(u[j], v[i]) / o.temperature for j in negatives(i, len(u), transposed(false))]
        if labels[i] == 1:
            losses.append(log_sum_exp(row) - own)
        elif o.form == "literal":
            losses.append(own - log_sum_exp(row))
        else:
            itself = ZERO + 1 / o.temperature  # a sentence's similarity to itself is 1
            losses.append((log_sum_exp([itself, *row]) - itself + log_sum_exp([itself, *column]) - itself) / 2)
    return mean(losses)


def gradient(o: Objective, u: Rows, v: Rows, false: Mask, hard: Hard) -> Tensor:
    def half(x: Rows, y: Rows, false: Mask, hard: Hard) -> Tensor:
        n = len(x)
        rows = []  # the sum of each row that passes the gate
        for i in range(n):
            similarity = [dot(x[i], other) for other in of_anchor(i, [row.detach() for row in y], false, hard)]
            a = dot(x[i], y[i])
            if o.dissipation is not None:
                if not similarity:
                    continue
                gap = a.detach() - max(s.detach() for s in similarity)
                if gap >= o.dissipation:
                    continue
            if o.power is None:
                unnormalised = [torch.exp(s.detach() / o.weight) for s in similarity]
            else:
                unnormalised = [s.detach().clamp_min(1e-4) ** o.power for s in similarity]
            targets = [s - o.ratio * a for s in similarity]
            weights = [x / sum(unnormalised) for x in unnormalised]
            rows.append(sum((w * target for w, target in zip(weights, targets, strict=True)), ZERO))
        return mean(rows) / n if rows else ZERO

    return half(u, v, false, hard) + half(v, u, transposed(false), none(hard))


def mixed(o: Objective, u: Rows, v: Rows, false: Mask, hard: Hard) -> Tensor:
    n, losses = len(u), []
    for i in range(n):
        a, s = dot(u[i], v[i]), dict(enumerate(dot(u[i], x) for x in of_anchor(i, v, false, hard)))
        others = list(s)
        if not others:
            losses.append(ZERO)
            continue
        hardest = max(others, key=lambda j: s[j].item())
        limit = 1 - torch.finfo(torch.float64).eps
        positive, negative = (math.acos(max(-limit, min(limit, x.item()))) for x in (a, s[hardest]))
        distance = {x: math.sqrt(max(2 - 2 * math.cos(x), 0)) for x in (positive, negative)}
        soft = {j: math.exp(s[j].item() / 0.05) for j in others}
        ten, total = math.radians(10), sum(soft.values())
        gate = {
            "infonce": total / (total + math.exp(a.item() / 0.05)),
            "arccon": total / (total + math.exp(math.cos(positive + ten) / 0.05)),
            "mpt": float(a.item() - s[hardest].item() < 0.23),
            "met": float(distance[negative] - distance[positive] < 0.45),
            "mat": float(negative - positive < 0.15 * math.pi),
        }[o.dissipation_of]
        if o.weight_of in ("infonce", "arccon"):
            push = sum((soft[j] / total * s[j] for j in others), ZERO)
        else:
            push = s[hardest]
        positive = max(0.01, min(math.pi - 0.01, positive))
        ratio = {
            "arccon": math.sin(positive + ten) / math.sin(positive),
            "met": distance[negative] / (2 * math.sin(positive / 2)),
            "mat": math.sin(negative) / math.sin(positive),
        }.get(o.ratio_of, 1.0)
        losses.append(gate * (push - ratio * a))
    return mean(losses)


def none(hard: Hard) -> Hard:
    return [[] for _ in hard]


def pairs_within(x: Rows, false: Mask, hard: Hard) -> list[tuple[Tensor, Tensor]]:
    """The unordered pairs of a view's rows, and those of a row with its hard negatives."""
    n = len(x)
    pairs = [(x[i], x[j]) for i in range(n) for j in range(i) if not unordered(false)[i][j]]
    return pairs + [(x[i], w) for i in range(n) for _, w in hard[i]]


def dissipated(o: Objective, x: Rows, false: Mask, hard: Hard) -> Rows:
    if o.dissipation is None:
        return x
    rows = []
    for i in range(len(x)):
        others = of_anchor(i, x, unordered(false), hard)
        near = bool(others) and bool(1 - max(dot(x[i], other) for other in others) < o.dissipation)
        rows.append(x[i] if near else x[i].detach())
    return rows


def mhe(o: Objective, u: Rows, v: Rows, false: Mask, hard: Hard) -> Tensor:
    u, v = dissipated(o, u, false, hard), dissipated(o, v, false, none(hard))
    n = len(u)
    temperature = o.weight or 1.0
    ratio = 1.0 if o.ratio is None else o.ratio
    loss = ZERO
    for x, mine in ((u, hard), (v, none(hard))):
        pairs = pairs_within(x, false, mine)
        energy = log_sum_exp([dot(one, other) / temperature for one, other in pairs]) if pairs else ZERO
        loss = loss + o.uniformity_weight * energy
        for i in range(n):
            pull = ZERO + 1 / n
            if o.weight is not None:
                others = of_anchor(i, x, unordered(false), mine)
                push = log_sum_exp([dot(x[i], other) / temperature for other in others])
                pull = torch.exp(push - energy).detach() / temperature if others else ZERO
            loss = loss + ratio * (2 - 2 * dot(u[i], v[i])) * pull / 2
    return loss


def mhs(o: Objective, u: Rows, v: Rows, false: Mask, hard: Hard) -> Tensor:
    u, v = dissipated(o, u, false, hard), dissipated(o, v, false, none(hard))
    n = len(u)
    loss = ZERO
    for x, y, mask, mine in ((u, v, false, hard), (v, u, transposed(false), none(hard))):
        for i in range(n):
            others = of_anchor(i, [row.detach() for row in y], mask, mine)
            pull = ZERO if o.ratio is not None else ZERO + 1
            if others:
                h = min(((x[i] - other).square().sum() + 1e-4).sqrt() for other in others)
                loss = loss - o.uniformity_weight * h / n
                if o.ratio is not None:
                    pull = o.ratio / h.detach()
            loss = loss + (2 - 2 * dot(u[i], v[i])) * pull / 2 / n
    return loss


def gradient_form(o: Objective, u: Rows, v: Rows, false: Mask, hard: Hard) -> Tensor:  # noqa: C901
    u, v = dissipated(o, u, false, hard), dissipated(o, v, false, none(hard))
    n, mask = len(u), unordered(false)

    def view(x: Rows, y: Rows, hard: Hard) -> Tensor:  # noqa: C901
        z = x if o.name == "vicreg" else y
        further = {(i, n + k): w for i in range(n) for k, w in hard[i]}
        similarity = {(i, j): dot(z[i], z[j]).detach() for i in range(n) for j in range(n)}
        similarity |= {(i, j): dot(z[i], w).detach() for (i, j), w in further.items()}
        off_diagonal = [(i, j) for i in range(n) for j in range(n) if i != j and not mask[i][j]] + [*further]

        def strength(i: int, j: int) -> Tensor:
            if o.power is not None:
                return similarity[i, j].clamp_min(1e-4) ** o.power
            return torch.exp(similarity[i, j] / o.weight)

        def weight(i: int, j: int) -> Tensor:
            if i != j and (i, j) not in off_diagonal:
                return ZERO
            if o.weight is None and o.power is None:
                return 2 / n**2 * similarity[i, j]
            if not off_diagonal:
                return ZERO
            return strength(i, j) / sum(strength(k, m) for k, m in off_diagonal)

        loss = ZERO
        for i in range(n):
            for j in range(n):
                loss = loss + o.uniformity_weight * weight(i, j) * dot(x[i], x[j].detach())
            for k, w in hard[i]:
                loss = loss + o.uniformity_weight * weight(i, n + k) * dot(x[i], w)
            if o.ratio is not None:
                push = sum((weight(*entry) for entry in off_diagonal if entry[0] == i), ZERO)
                loss = loss - o.uniformity_weight * o.ratio * push * dot(x[i], y[i])
            elif o.name == "vicreg":
                loss = loss - 2 / n * dot(x[i], y[i].detach())
            else:
                for d in range(len(x[i])):
                    c = sum((x[k][d] * y[k][d] for k in range(n)), ZERO).detach() / n
                    loss = loss - 2 / n * (1 - (1 - o.uniformity_weight) * c) * x[i][d] * y[i][d].detach()
        return loss

    return view(u, v, hard) + view(v, u, none(hard))


def byol(o: Objective, u: Rows, v: Rows, false: Mask, hard: Hard) -> Tensor:
    return mean([2 - 2 * dot(x, y.detach()) for x, y in zip(u, v, strict=True)])


LOOPS: dict[str, Callable[[Objective, Rows, Rows, Mask, Hard], Tensor]] = {
    "infonce": infonce,
    "arccon": infonce,
    "mnrl": infonce,
    "mpt": margin,
    "met": margin,
    "mat": margin,
    "dcl": dcl,
    "dcl_positive": dcl,
    "align_uniform": align_uniform,
    "gradient": gradient,
    "mixed": mixed,
    "mhe": mhe,
    "mhs": mhs,
    "byol": byol,
    "vicreg": gradient_form,
    "barlow_twins": gradient_form,
}
LABELLED: dict[str, Callable[[Objective, Rows, Rows, list[float], Mask], Tensor]] = {
    "cosine": cosine,
    "cosent": cosent,
    "quora_pairs": quora_pairs,
}
