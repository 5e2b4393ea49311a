"""Heads: what they compute and share; a training goes on with its start's heads where they mean the same."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from minbert.errors import InputError
from multitask.models.heads_of_start import take_heads
from multitask.models.model_folder import HEADS
from multitask.models.multitask_model import MultitaskModel
from multitask.models.prediction_heads import BilinearHead, CosineHead, FeatureHead, Mlp, SentenceHead, build_heads
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.models.settings import HeadsConfig
from multitask.stages.settings import FinetuneConfig
from multitask.tasks.declarations import task_of
from multitask.tasks.task import Task
from tests.conftest import COURSE_TASKS
from tests.multitask.declared import declared_tasks

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


# A training goes on with the start's heads bit for bit where they mean the same, and says where and why not.


TASKS = declared_tasks()
SEPARATE = HeadsConfig("separate")


def build_model(encoder: Path, tasks: dict[str, Task], heads: HeadsConfig = SEPARATE, pooling="mean") -> MultitaskModel:
    return MultitaskModel(SentenceEncoder.read(encoder, pooling), tasks, heads).eval()


def tensors(model: MultitaskModel, name: str) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in model.heads[name].state_dict().values()]


@pytest.fixture
def start(tiny_encoder, tmp_path):
    """The model in a folder, and the folder."""

    def call(heads: HeadsConfig = SEPARATE) -> tuple[MultitaskModel, Path]:
        torch.manual_seed(1)
        model = build_model(tiny_encoder, TASKS, heads)
        model.save(tmp_path / "start")
        return model, tmp_path / "start"

    return call


@pytest.mark.parametrize("heads", [SEPARATE, HeadsConfig("shared"), HeadsConfig("separate", "features", residual=True)])
def test_heads_of_the_same_tasks_go_on_and_no_random_number_is_drawn(start, tiny_encoder, heads, caplog):
    caplog.set_level("INFO")
    old, folder = start(heads)
    torch.manual_seed(2)
    model = build_model(
        tiny_encoder, {name: TASKS[name] for name in ("topic", "same", "similar")}, replace(heads, dropout=0.1)
    )
    state = torch.random.get_rng_state()
    take_heads(model, folder, new=False)
    assert torch.equal(torch.random.get_rng_state(), state)
    embeddings = torch.randn(6, 32)
    for name in model.tasks:
        assert torch.equal(model.head(name, embeddings), old.head(name, embeddings))
    assert caplog.messages == [
        "heads: kept from the start: topic, same, similar; left out: tags, stars, entails, distance"
    ]


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("topic", {"labels": ["ABBR", "ENTY", "DESC"]}, "there its labels are ABBR, DESC, ENTY"),
        ("topic", {"kind": "multilabel"}, "there it is a classification"),
        ("stars", {"range": [0, 5]}, "there its range is 1 to 5"),
        ("similar", {"range": [0, 1]}, "there its range is 0 to 5"),
    ],
)
def test_a_head_that_means_something_else_begins_anew(start, tiny_encoder, name, fields, reason, caplog):
    caplog.set_level("INFO")
    _, folder = start()
    changed = task_of(name, {**TASKS[name].declaration(), **fields})
    model = build_model(tiny_encoder, {name: changed, "same": TASKS["same"], "own": replace(TASKS["same"], name="own")})
    before = {task: tensors(model, task) for task in model.tasks}
    take_heads(model, folder, new=False)
    kept = {task: all(map(torch.equal, tensors(model, task), before[task])) for task in before}
    assert kept == {name: True, "same": False, "own": True}
    (message,) = caplog.messages
    assert message.startswith(
        f"heads: kept from the start: same; new: {name} ({reason}), own (the start has none); left "
    )


@pytest.mark.parametrize(
    ("heads", "pooling", "reason"),
    [
        (SEPARATE, "cls", "the start pools by mean"),
        (HeadsConfig("shared"), "mean", "the start's has other layers"),
        (HeadsConfig("none"), "mean", "the start's has other layers"),
        (HeadsConfig("separate", "joint"), "mean", "the start's has other layers"),
        (HeadsConfig("separate", head_hidden_size=8), "mean", "the start's has other layers"),
    ],
)
def test_heads_with_other_layers_begin_anew(start, tiny_encoder, heads, pooling, reason, caplog):
    caplog.set_level("INFO")
    _, folder = start()
    model = build_model(tiny_encoder, {name: TASKS[name] for name in ("same", "similar")}, heads, pooling)
    before = {task: tensors(model, task) for task in model.tasks}
    take_heads(model, folder, new=False)
    assert all(all(map(torch.equal, tensors(model, task), before[task])) for task in before)
    assert f"new: same ({reason}), similar ({reason})" in caplog.text


def test_new_heads_on_request_and_none_of_a_start_without(start, tiny_encoder, caplog):
    caplog.set_level("INFO")
    _, folder = start()
    model = build_model(tiny_encoder, {"same": TASKS["same"]})
    before = tensors(model, "same")
    take_heads(model, tiny_encoder, new=False)
    assert caplog.messages == []
    take_heads(model, folder, new=True)
    assert caplog.messages[0].startswith("heads: all are new, and those of the start (topic, tags, ")
    assert all(map(torch.equal, tensors(model, "same"), before))
    (folder / HEADS).write_bytes(b"")
    with pytest.raises(InputError, match="heads"):
        take_heads(model, folder, new=False)
