"""The page's answers show what the library computes, mistakes are a 4xx that says why, and nobody else may ask."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from urllib.parse import unquote

import numpy as np
import pytest
from starlette.testclient import TestClient

from multitask.evaluation.gradient_probe import probe
from multitask.inference.explore.contrast import dropout_views
from multitask.inference.explore.explorer import load_dev_sets
from multitask.inference.explore.routes import ASSETS, add_page
from multitask.inference.serve.app import create_app
from multitask.inference.serve.limits import Limits
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import build_objective

SENTENCES = ["Two dogs run.", "A band plays.", "The film is long."]
LINES = "\n".join(SENTENCES)
EVIL = "<img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture(scope="module")
def client(models, dev_sets) -> Iterator[TestClient]:
    app = create_app(models, Limits(texts=40, characters=200))
    add_page(app, dev_sets)
    with TestClient(app) as client:
        yield client


def ask(client: TestClient, view: str, **body: object) -> str:
    answer = client.post(f"/explore/{view}", json=body)
    assert answer.status_code == 200, answer.text
    assert "<img" not in answer.text
    return answer.text


def table(html: str, number: int) -> list[list[str]]:
    """The texts of a table's cells, row by row."""
    found = re.findall(r"<table.*?</table>", html, re.DOTALL)[number]
    rows = re.findall(r"<tr.*?</tr>", found, re.DOTALL)
    return [[text_of(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]


def text_of(html: str) -> str:
    return unescape(re.sub(r"<.*?>", "", html)).strip()


def bare(model: MultitaskModel, tasks: dict | None = None) -> MultitaskModel:
    """The encoder with other tasks; by default with none."""
    return MultitaskModel(model.encoder, model.tokenizer, tasks or {}, model.pooling, model.heads_config).eval()


def test_the_page_loads_nothing_from_elsewhere(client):
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.findall(r'(?:src|href)="([^"]*)"', page.text) == [
        "data:,",
        *(f"explore/assets/{name}" for name in ASSETS),
    ]
    for name in ASSETS:
        assert "https://" not in client.get(f"/explore/assets/{name}").text
    for path in ("routes.py", "..%2Froutes.py"):
        assert client.get(f"/explore/assets/{path}").status_code == 404
    assert not [path for path in client.get("/openapi.json").json()["paths"] if "explore" in path]


def test_the_views_have_models_dev_sets_and_objectives(client, dev_sets):
    html = client.get("/explore/views").text
    assert re.findall(r"<option.*?>(one|two)<", html) == ["one", "two"] * 2
    assert f'<option value="similarity">similarity: {len(dev_sets["similarity"].sentences)} dev sentences' in html
    assert dev_sets["sentiment"].rows["one"].texts[0][0][:60] in unescape(html)
    assert 'name="dissipation"' in html
    assert '<option value="" selected>' not in html  # but the first task


@pytest.mark.parametrize("effects", ["occlusion", "integrated_gradients"])
@pytest.mark.parametrize("texts", [[f"A gem {EVIL}."], ["Two dogs run.", "Dogs are running."]], ids=["one", "pair"])
def test_predictions_equal_those_of_the_model_and_have_every_word(client, models, texts, effects):
    body = dict(zip(("first", "second"), texts, strict=False))
    html = ask(client, "predict", model="two", effects=effects, **body)
    expected = models["two"].predict_all([texts[0] if len(texts) == 1 else tuple(texts)])
    assert re.findall(r'data-task="(\w+)"', html) == list(expected)
    shown = re.findall(r"<h3>(\w+): <strong>(.*?)</strong>", html)
    for (name, headline), (task, (prediction,)) in zip(shown, expected.items(), strict=True):
        if prediction.value is not None:
            assert (name, float(headline)) == (task, pytest.approx(prediction.value, rel=5e-3))
        else:
            assert (name, headline) == (task, models["two"].tasks[task].shown_names[prediction.label])
    words = [word for _ in expected for text in texts for word in text.split()]
    titles = [unescape(title) for title in re.findall(r'title="(.*?): [+−][\d.e-]+"', html)]
    assert titles == words
    assert html.count("completeness") == (len(expected) if effects == "integrated_gradients" else 0)


def test_the_most_probable_class_stands_first_with_its_name(client, models):
    rows = table(ask(client, "predict", first="A gem."), 0)
    (prediction,) = models["one"].predict("sentiment", ["A gem."])
    assert [float(share) for _, share, _ in rows] == pytest.approx(
        sorted(prediction.probabilities.values())[::-1], abs=1e-3
    )
    assert {label for label, *_ in rows} == {"very negative", "negative", "neutral", "positive", "very positive"}


@pytest.mark.parametrize("own", [False, True], ids=["dev", "own"])
def test_a_sentence_is_its_own_nearest(client, dev_sets, own):
    known = [*SENTENCES, EVIL] if own else list(dev_sets["sentiment"].sentences)
    where = {"sentences": "\n".join(known)} if own else {"task": "sentiment"}
    html = ask(client, "neighbours", query=known[-1], **where)
    assert table(html, 0)[1][:2] == ["1.000", known[-1]]
    assert len(re.findall(r"<circle cx=\"[\d.]+\" cy=\"[\d.]+\" r=\"5\"", html)) == len(known)
    own_dot = re.search(rf'cx="(.*?)" cy="(.*?)" r="5" fill="[^"]*"><title>{re.escape(known[-1][:5])}', unescape(html))
    query = re.search(r'class="query" cx="(.*?)" cy="(.*?)"', html)
    assert [float(x) for x in query.groups()] == pytest.approx([float(x) for x in own_dot.groups()], abs=0.2)


def test_a_corpus_is_embedded_once_for_many_queries(client, monkeypatch):
    sizes = []
    plain = SentenceEncoder.encode
    monkeypatch.setattr(
        SentenceEncoder, "encode", lambda self, texts, **how: sizes.append(len(texts)) or plain(self, texts, **how)
    )
    for number in range(12):
        ask(client, "neighbours", query=f"query {number}", sentences="one\ntwo\nthree\nfour\ntwo\n\n")
    assert sizes == [4] + [1] * 12


def test_a_contrast_shows_the_probes_components_and_a_step(client, encoder):
    asked = {"sentences": LINES, "objective": "infonce", "temperature": "0.2", "seed": 5}
    html = ask(client, "contrast", **asked)
    views = dropout_views(encoder, SENTENCES, 0.1, 5)
    expected = probe(build_objective("infonce", temperature=0.2), *views)
    cosines = np.array([[float(cell) for cell in row[1:]] for row in table(html, 0)[1:]])
    plain = [view.numpy() / np.linalg.norm(view, axis=1, keepdims=True) for view in views]
    np.testing.assert_allclose(cosines, plain[0] @ plain[1].T, atol=0.0051)
    assert [row[i + 1] for i, row in enumerate(table(html, 2)[1:])] == ["–"] * 3  # a positive is no negative
    for row, dissipation, ratio in zip(table(html, 3)[1:], expected.dissipation, expected.ratio, strict=True):
        assert [float(row[2]), float(row[4])] == pytest.approx([dissipation.item(), ratio.item()], rel=5e-3)
    before, after = re.search(r"Loss (\S+); after the step (\S+)\.", html).groups()
    assert float(after) < float(before)
    still = ask(client, "contrast", **asked, step=0)
    assert table(still, 0) == table(still, 1)
    undefined = ask(client, "contrast", sentences=LINES, objective="mpt", margin="0", dropout=0)
    assert [row[4] for row in table(undefined, 3)[1:]] == ["–"] * 3  # without a push there is no ratio
    assert "-0.00" not in html + still + undefined


def test_the_table_and_its_file_have_the_same_rows(client):
    asked = {"task": "sentiment", "only_wrong": "on"}
    shown = table(ask(client, "errors", **asked), 0)[1:]
    rows = list(csv.DictReader(io.StringIO(client.post("/explore/errors.csv", json=asked).text)))
    assert [row["row"] for row in rows] == [row[0] for row in shown] != []
    confidences = [float(row["confidence"]) for row in rows]
    assert confidences == sorted(confidences, reverse=True)


MISTAKES = [
    ("predict", {"first": " "}, 422, "no text"),
    ("predict", {"first": "a" * 201}, 422, "201 characters"),
    ("predict", {"first": "a", "model": "three"}, 404, "no model"),
    ("predict", {"first": "a", "effects": "magic"}, 422, "effects"),
    ("neighbours", {"query": "a", "task": "taste"}, 404, "no dev set of taste; there are: sentiment"),
    ("neighbours", {"query": "a", "sentences": "a\nb"}, 422, "2 different sentences; expected at least 3"),
    ("neighbours", {"query": "a", "sentences": "\n".join(map(str, range(2001)))}, 422, "more than 2,000"),
    ("contrast", {"sentences": "a\na ", "objective": "infonce"}, 422, "1 different sentences; expected 2 to 12"),
    ("contrast", {"sentences": "\n".join(map(str, range(13))), "objective": "infonce"}, 422, "expected 2 to 12"),
    ("contrast", {"sentences": LINES, "objective": "cosine"}, 422, "learns from labels"),
    ("contrast", {"sentences": LINES, "objective": "infonce", "temperature": "0"}, 422, "above 0"),
    ("contrast", {"sentences": LINES, "objective": "infonce", "heat": "1"}, 422, "no parameter"),
    ("contrast", {"sentences": LINES, "objective": "infonce", "dropout": 1}, 422, "dropout"),
    ("errors", {"task": "taste"}, 404, "no dev set"),
    ("errors.csv", {"task": "sentiment", "start": -1}, 422, "start"),
]


@pytest.mark.parametrize(("path", "body", "status", "error"), MISTAKES)
def test_mistakes_are_explained(client, path, body, status, error):
    answer = client.post(f"/explore/{path}", json=body)
    assert answer.status_code == status
    assert error in answer.json()["error"]


def test_the_file_of_a_task_has_its_name(models, dev_sets):
    """RFC 5987: a header has only Latin letters."""
    task = replace(models["one"].tasks["sentiment"], name="日本")
    app = create_app({"one": bare(models["one"], {"日本": task})}, Limits())
    add_page(app, {"日本": dev_sets["sentiment"]})
    with TestClient(app) as client:
        file = client.post("/explore/errors.csv", json={"task": "日本"})
    assert file.status_code == 200
    name = file.headers["content-disposition"].partition("filename*=UTF-8''")[2]
    assert unquote(name) == "日本-dev.csv"


def test_the_token_guards_all_but_the_page_itself(models, dev_sets):
    app = create_app(models, Limits(), token="sesame")
    add_page(app, dev_sets)
    with TestClient(app) as client:
        for path in ("/", *(f"/explore/assets/{name}" for name in ASSETS)):
            page = client.get(path)
            assert page.status_code == 200
            assert "sentiment" not in page.text
        assert client.get("/explore/views").status_code == 401
        for path in ("predict", "neighbours", "contrast", "errors", "errors.csv"):
            assert client.post(f"/explore/{path}", json={}).status_code == 401


def test_an_encoder_without_tasks_has_neighbours_and_contrasts(models, small_data):
    app = create_app({"bare": (model := bare(models["one"]))}, Limits())
    add_page(app, load_dev_sets({"bare": model}, small_data, 10))
    with TestClient(app) as client:
        assert 'name="task"' in client.get("/explore/views").text
        ask(client, "neighbours", query="a", task="paraphrase")
        ask(client, "contrast", sentences=LINES, objective="infonce")
        assert "no tasks" in ask(client, "predict", first="a")
        refused = client.post("/explore/errors", json={"task": "sentiment"})
        assert (refused.status_code, refused.json()["error"]) == (404, "bare has no task sentiment")
