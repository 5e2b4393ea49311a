"""Heads: what they compute, which layers they share, how many parameters they have."""

import pytest
import torch
from torch import nn

from minbert.errors import InputError
from multitask.models.prediction_heads import (
    BilinearHead,
    CosineHead,
    FeatureHead,
    Mlp,
    SentenceHead,
    build_heads,
)
from multitask.models.settings import HeadsConfig
from multitask.stages.settings import FinetuneConfig
from multitask.tasks.declarations import task_of
from tests.conftest import COURSE_TASKS

WIDTH, HIDDEN, ROWS = 6, 4, 5
ALL = list(COURSE_TASKS.values())


def build(sharing="separate", pairs="embeddings", hidden=HIDDEN, tasks=ALL, **more):
    torch.manual_seed(0)
    return build_heads(tasks, WIDTH, HeadsConfig(sharing=sharing, pairs=pairs, head_hidden_size=hidden, **more)).eval()


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def owners(heads):
    """The tasks that use each parameter."""
    used = {}
    for task, head in heads.items():
        for name, parameter in head.named_parameters():
            used.setdefault(id(parameter), (name, []))[1].append(task)
    return [(name, set(tasks)) for name, tasks in used.values()]


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"sharing": "separate"}, set()),
        ({"sharing": "none"}, set()),
        ({"pairs": "features", "sharing": "shared_first_layer"}, set()),
        ({"pairs": "joint", "sharing": "shared_first_layer"}, set()),
        ({"sharing": "shared_first_layer"}, {"first.weight", "first.bias"}),
        ({"sharing": "shared_first_layer", "residual": True}, {"first.weight", "first.bias"}),
        ({"sharing": "shared"}, {"first.weight", "first.bias", "second.weight", "second.bias"}),
        ({"sharing": "shared", "residual": True}, {"first.weight", "first.bias", "second.weight", "second.bias"}),
    ],
)
def test_what_paraphrase_and_similarity_share(settings, expected):
    shared = [(name, tasks) for name, tasks in owners(build(**settings)) if len(tasks) > 1]
    assert {".".join(name.split(".")[-2:]) for name, _ in shared} == expected
    assert all(tasks == {"paraphrase", "similarity"} for _, tasks in shared)


@pytest.mark.parametrize("given", [{"pairs": "joint"}, {"similarity_pairs": "features"}], ids=str)
@pytest.mark.parametrize("sharing", ["shared", "none"])
def test_shared_layers_need_pairs_of_embeddings(sharing, given):
    with pytest.raises(InputError, match=f"sharing={sharing} needs pairs=embeddings; with pairs={min(given.values())}"):
        build(sharing, **given)


def test_mlp_is_dropout_linear_relu_dropout_linear():
    mlp, x = Mlp(WIDTH, HIDDEN, 3, dropout=0.5), draw(ROWS, WIDTH)
    mlp.eval()
    expected = (x @ mlp.first.weight.T + mlp.first.bias).clamp(min=0) @ mlp.second.weight.T + mlp.second.bias
    torch.testing.assert_close(mlp(x), expected)
    torch.testing.assert_close(SentenceHead(mlp)(x), expected)
    torch.testing.assert_close(SentenceHead(mlp, bounded=True)(x), expected.sigmoid())
    mlp.train()
    torch.manual_seed(3)
    before = nn.functional.dropout(x, 0.5)
    between = nn.functional.dropout(mlp.first(before).relu(), 0.5)
    torch.manual_seed(3)
    torch.testing.assert_close(mlp(x), mlp.second(between))


def test_cosine_head():
    head, x, y = CosineHead(nn.Linear(WIDTH, HIDDEN)), draw(ROWS, WIDTH), draw(2 * ROWS, WIDTH)[ROWS:]
    a, b = head.transform(x), head.transform(y)
    torch.testing.assert_close(head(x, y), (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1)))
    torch.testing.assert_close(head(x, x), torch.ones(ROWS))
    torch.testing.assert_close(CosineHead(nn.Identity())(x, -2 * x), -torch.ones(ROWS))


@pytest.mark.parametrize("outputs", [1, 3])
def test_bilinear_head(outputs):
    head, x, y = BilinearHead(nn.Linear(WIDTH, HIDDEN), HIDDEN, outputs), draw(ROWS, WIDTH), draw(9, WIDTH)[4:]
    assert not head.bias.any()
    with torch.no_grad():
        head.bias.copy_(draw(outputs).view_as(head.bias))
    forms = head.form.weight.view(outputs, HIDDEN, HIDDEN)
    expected = nn.functional.bilinear(head.transform(x), head.transform(y), forms, head.bias.view(outputs))
    torch.testing.assert_close(head(x, y), expected.squeeze(1))


@pytest.mark.parametrize("bounded", [False, True])
def test_feature_head_is_symmetric_and_reads_all_three_features(bounded):
    head, x, y = FeatureHead(Mlp(3 * WIDTH, HIDDEN, 1, 0.3), bounded).eval(), draw(ROWS, WIDTH), draw(9, WIDTH)[4:]
    torch.testing.assert_close(head(x, y), head(y, x))
    features = torch.stack([torch.cat([abs(a - b), a * b, a + b]) for a, b in zip(x, y, strict=True)])
    expected = head.mlp(features)[:, 0]
    torch.testing.assert_close(head(x, y), expected.sigmoid() if bounded else expected)


@pytest.mark.parametrize("sharing", ["separate", "shared_first_layer", "shared"])
def test_residual_heads_begin_with_the_embeddings_own_geometry(sharing):
    heads, x, y = build(sharing, residual=True), draw(ROWS, WIDTH), draw(2 * ROWS, WIDTH)[ROWS:]
    torch.testing.assert_close(heads["similarity"](x, y), torch.cosine_similarity(x, y))
    bilinear = heads["paraphrase"]
    torch.testing.assert_close(bilinear(x, y), ((x @ bilinear.form.weight) * y).sum(dim=1))
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.normal_()
    first, second = (z + heads["similarity"].transform.transform(z) for z in (x, y))
    torch.testing.assert_close(heads["similarity"](x, y), torch.cosine_similarity(first, second))


@pytest.mark.parametrize(
    "similarity, kind", [("embeddings", CosineHead), ("features", FeatureHead), ("joint", SentenceHead)]
)
def test_similarity_may_read_its_pairs_differently(similarity, kind):
    heads = build(pairs="joint", similarity_pairs=similarity)
    assert type(heads["similarity"]) is kind
    assert type(heads["paraphrase"]) is SentenceHead
    assert not heads["paraphrase"].bounded  # only similarity is squashed into its range
    assert getattr(heads["similarity"], "bounded", True)


def test_a_number_of_a_pair_begins_with_the_cosine_of_the_embeddings():
    """Under the defaults of `finetune`; the MLP on the features adds to it."""
    task = task_of("near", {"kind": "pair_regression", "text": ["a", "b"], "label": "l"})
    head, x, y = (
        build_heads([task], WIDTH, FinetuneConfig().heads)["near"].eval(),
        draw(ROWS, WIDTH),
        draw(9, WIDTH)[4:],
    )
    features = torch.cat([(x - y).abs(), x * y, x + y], dim=1)
    torch.testing.assert_close(head(x, y), head.mlp(features)[:, 0] + torch.cosine_similarity(x, y))
    with torch.no_grad():
        head.scale.fill_(-2)
        head.mlp.second.weight.zero_()
        head.mlp.second.bias.zero_()
    torch.testing.assert_close(head(x, y), -2 * torch.cosine_similarity(x, y))


@pytest.mark.parametrize("pairs", ["embeddings", "features"])
def test_shapes_of_one_row(pairs):
    heads, x = build("separate", pairs), draw(1, WIDTH)
    for task in ALL:
        outputs = heads[task.name](x, x) if task.pair else heads[task.name](x)
        assert outputs.shape == ((1, task.outputs) if task.outputs > 1 else (1,))
