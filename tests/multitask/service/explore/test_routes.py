"""The page's answers show what the library computes, mistakes are a 4xx that says why, and nobody else may ask."""

import copy
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

from minbert.inference_layer import Bf16Model, processor_has_bf16
from multitask.evaluation.gradient_probe import probe
from multitask.models.multitask_model import MultitaskModel
from multitask.models.sentence_encoder import SentenceEncoder
from multitask.objectives import build_objective
from multitask.service.app import create_app
from multitask.service.explain import dropout_views
from multitask.service.explore_routes import VIEWS
from multitask.service.explorer import load_dev_sets
from multitask.service.limits import Limits
from multitask.tasks.declarations import load_tasks
from tests.multitask.declared import tasks_file

SENTENCES = ["Two dogs run.", "A band plays.", "The film is long."]
LINES = "\n".join(SENTENCES)
EVIL = "<img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture(scope="module")
def client(models, dev_sets) -> Iterator[TestClient]:
    with TestClient(create_app(models, Limits(texts=40, characters=200), dev_sets=dev_sets)) as client:
        yield client


def ask(client: TestClient, view: str, **form: object) -> str:
    """The answers of the page to a form, by default of the first model alone."""
    answer = client.post("/", data={"view": view, "compare": "", **form})
    assert answer.status_code == 200, answer.text
    assert "<img" not in answer.text
    return answer.text.partition('<div class="answers')[2]


def table(html: str, number: int) -> list[list[str]]:
    """The texts of a table's cells, row by row."""
    found = re.findall(r"<table.*?</table>", html, re.DOTALL)[number]
    rows = re.findall(r"<tr.*?</tr>", found, re.DOTALL)
    return [[text_of(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]


def text_of(html: str) -> str:
    return unescape(re.sub(r"<.*?>", "", html)).strip()


def bare(model: MultitaskModel, tasks: dict | None = None) -> MultitaskModel:
    """The encoder with other tasks; by default with none."""
    return MultitaskModel(model.encoder, tasks or {}, model.heads_config).eval()


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_answers_with_its_examples_for_both_models_and_loads_nothing(client, view):
    page = client.get("/", params={"view": view})
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script" not in policy + page.text
    assert re.findall(r'(?:src|href)="(?!\?|explore/errors\.csv\?)([^"]*)"', page.text) == ["data:,"]
    answers = page.text.partition('<div class="answers')[2]
    assert re.findall(r"<h2>(.*?)</h2>", answers) == (["one", "two"] if view != "errors" else [])
    assert "/explore" not in str(client.get("/openapi.json").json()["paths"])


@pytest.mark.parametrize("with_dev_sets", [True, False])
@pytest.mark.parametrize(
    ("tasks", "opens"), [((), "neighbours"), (("similarity",), "predict"), (("sentiment",), "predict")], ids=str
)
def test_the_page_opens_on_what_the_model_can_do(models, small_data, tasks, opens, with_dev_sets):
    model = bare(models["one"], {name: models["one"].tasks[name] for name in tasks})
    dev_sets = load_dev_sets({"a": model}, small_data, 20) if with_dev_sets else {}
    with TestClient(create_app({"a": model}, Limits(), dev_sets=dev_sets)) as client:
        page = client.get("/")
        offered = re.findall(r'href="\?view=(\w+)', page.text.partition("</nav>")[0])
        assert all(client.get("/", params={"view": view}).status_code == 200 for view in offered)
    assert page.status_code == 200
    assert 'role="alert"' not in page.text
    assert f'name="view" value="{opens}"' in page.text
    assert re.findall('data-task="(.*?)"', page.text) == list(tasks)
    assert offered == [
        *["predict"] * bool(tasks),
        "neighbours",
        "contrast",
        *["errors"] * (with_dev_sets and tasks != ()),
    ]
    if with_dev_sets and tasks:  # what it shows is a row that it predicts well
        rows = dev_sets[tasks[0]].rows["a"]
        shown = re.findall(r'<textarea name="(?:first|second)" rows="2">\n(.*?)</textarea>', page.text, re.DOTALL)
        [error] = [row.error for row in rows.itertuples() if [*row.texts] == [unescape(text) for text in shown if text]]
        assert error == min(rows.error) if tasks == ("sentiment",) else error <= np.median(rows.error)


def test_labels_to_choose_from_are_in_the_order_of_classes(models, dev_sets):
    explored = dev_sets["sentiment"]
    rows = explored.rows["one"]
    numbered = replace(explored, rows={"one": rows.assign(gold=[("10", "9", "2")[i % 3] for i in range(len(rows))])})
    with TestClient(create_app({"one": models["one"]}, Limits(), dev_sets={"sentiment": numbered})) as client:
        page = client.get("/", params={"view": "errors", "task": "sentiment"}).text
    (chooser,) = re.findall(r'<select name="gold".*?</select>', page, re.DOTALL)
    assert re.findall(r'value="(\d+)"', chooser) == ["2", "9", "10"]


def test_a_label_that_no_row_has_chooses_none_and_the_form_shows_it(client):
    asked = {"view": "errors", "task": "sentiment", "model": "one", "rows": "all", "predicted": "of another <task>"}
    page = client.get("/", params=asked).text
    for name, chosen in (("gold", ["any"]), ("predicted", ["of another <task>"])):
        (chooser,) = re.findall(rf'<select name="{name}".*?</select>', page, re.DOTALL)
        options = [unescape(text) for text in re.findall(r"<option[^>]*>(.*?)</option>", chooser)]
        assert options[0] == "any"
        assert len(set(options)) == len(options)
        assert [unescape(text) for text in re.findall(r"<option[^>]* selected>(.*?)</option>", chooser)] == chosen
    assert "No row has this label and prediction" in page
    file = client.get("/" + unescape(re.search(r'href="(explore/errors\.csv\?.*?)"', page)[1]))
    assert len(file.text.splitlines()) == 1
    right = client.get("/", params=asked | {"predicted": options[1]}).text
    assert "No row has this label and prediction" not in right


def test_a_form_keeps_what_was_asked(client):
    form = {"sentences": "a </textarea>\nb", "objective": "mpt", "mpt.margin": "0.4", "dropout": "0.2", "seed": "1e"}
    page = client.post("/", data={"view": "contrast", "model": "two", **form}).text
    assert '<textarea name="sentences" rows="6">\na &lt;/textarea&gt;\nb</textarea>' in page
    for shown in ('value="two" selected', 'value="mpt" selected', 'name="mpt.margin" value="0.4"', 'value="1e"'):
        assert shown in page


@pytest.mark.parametrize("effects", ["occlusion", "integrated_gradients"])
@pytest.mark.parametrize("texts", [[f"A gem {EVIL}."], ["Two dogs run.", "Dogs are running."]], ids=["one", "pair"])
def test_predictions_equal_those_of_the_model_and_have_every_word(client, models, texts, effects):
    form = dict(zip(("first", "second"), texts, strict=False))
    html = ask(client, "predict", model="two", effects=effects, **form)
    expected = models["two"].predict_all([texts[0] if len(texts) == 1 else tuple(texts)])
    assert re.findall(r'data-task="(\w+)"', html) == list(expected)
    shown = re.findall(r"<h3>(\w+): <strong>(.*?)</strong>", html)
    for (name, headline), (task, (prediction,)) in zip(shown, expected.items(), strict=True):
        if prediction.value is not None:
            assert (name, float(headline)) == (task, pytest.approx(prediction.value, rel=5e-3))
        else:
            assert (name, headline) == (task, models["two"].tasks[task].shown_names[prediction.label])
    words = [word for _ in expected for text in texts for word in text.split()]
    assert [unescape(title) for title in re.findall(r'title="(.*?): [+-][\d.e-]+"', html)] == words
    assert html.count("completeness") == (len(expected) if effects == "integrated_gradients" else 0)


def test_the_most_probable_class_stands_first_with_its_name(client, models):
    rows = table(ask(client, "predict", first="A gem."), 0)
    (prediction,) = models["one"].predict("sentiment", ["A gem."])
    expected = sorted(prediction.probabilities.values())[::-1]
    assert [float(share) for _, share, _ in rows] == pytest.approx(expected, abs=1e-3)
    assert {label for label, *_ in rows} == {"very negative", "negative", "neutral", "positive", "very positive"}


@pytest.mark.parametrize("of", ["dev", "own", "many"])
def test_a_sentence_is_its_own_nearest(client, dev_sets, of):
    """The map has the first 400 sentences."""
    many, own = [f"{number} dogs run." for number in range(402)], [EVIL, *SENTENCES]
    known = {"dev": list(dev_sets["sentiment"].sentences), "own": own, "many": many}[of]
    where = {"task": "sentiment"} if of == "dev" else {"own": "\n".join(known), "task": ""}
    html = ask(client, "neighbours", query=f" {known[0]} ", **where)
    assert table(html, 0)[1][:2] == ["1.000", known[0]]
    dots = re.findall(r'cx="(.*?)" cy="(.*?)" r="5" fill="[^"]*"><title>(.*?)</title>', html)
    titles = sorted(unescape(title) for *_, title in dots)
    assert all(title.startswith(text) for title, text in zip(titles, sorted(known[:400]), strict=True))
    assert len(table(html, 1)) - 1 == len(dots)
    [place] = [map(float, dot) for *dot, title in dots if unescape(title).startswith(known[0])]
    query = re.search(r'class="query" cx="(.*?)" cy="(.*?)"', html)
    assert [float(x) for x in query.groups()] == pytest.approx([*place], abs=0.2)


def test_neighbours_among_a_tasks_sentences_are_embedded_in_each_models_words(models, tmp_path):
    rows = {"one": ["A dog.", "A band.", "A film."], "two": ["A cat.", "A band.", "A play."], "near": [0, 1, 0.5]}
    words = {"kind": "cosine", "text": ["query: {one}", "passage: {two}"], "label": "near"}
    declared, plain = tmp_path / "declared", tmp_path / "plain"
    for folder, texts in ((declared, words["text"]), (plain, ["one", "two"])):
        folder.mkdir()
        tasks_file(folder, rows, alike=words | {"text": texts})
    worded, wordless = (bare(models["one"], load_tasks(folder / "tasks.toml")) for folder in (declared, plain))
    having = {"worded": worded, "wordless": wordless}
    explored = {"other": bare(models["one"], {}), **having}
    corpus = {text: f"query: {text}" for text in rows["one"]} | {text: f"passage: {text}" for text in rows["two"][::2]}
    read = {"worded": ["query: A frog.", *corpus.values()], "wordless": ["A frog.", *corpus]}
    for folder, other in ((declared, "worded"), (plain, "wordless")):  # a model without the task reads the file's words
        dev_sets = load_dev_sets(explored, folder / "tasks.toml", None)
        with TestClient(create_app(explored, Limits(), dev_sets=dev_sets)) as client:
            for name, texts in (read | {"other": read[other]}).items():
                shown = table(ask(client, "neighbours", model=name, task="alike", query="A frog."), 0)[1:]
                query, *embeddings = worded.encoder.encode(texts, normalize=True)
                cosines = dict(zip(corpus, np.array(embeddings) @ query, strict=True))
                assert {row[1]: float(row[0]) for row in shown} == pytest.approx(cosines, abs=6e-4)
    asked, *plain_texts = worded.encoder.encode(read["wordless"], normalize=True)
    query, *with_words = worded.encoder.encode(read["worded"], normalize=True)
    assert max(abs(np.array(plain_texts) @ asked - np.array(with_words) @ query)) > 1e-2


def test_a_corpus_is_embedded_once_for_many_queries(client, monkeypatch):
    sizes = []
    plain = SentenceEncoder.encode
    monkeypatch.setattr(
        SentenceEncoder, "encode", lambda self, texts, **how: sizes.append(len(texts)) or plain(self, texts, **how)
    )
    for number in range(12):
        ask(client, "neighbours", query=f"query {number}", task="", own="one\ntwo\nthree\nfour\ntwo\n\n")
    assert sizes == [4] + [1] * 12


def test_a_contrast_shows_the_probes_components_and_a_step(client, encoder):
    asked = {"sentences": LINES, "objective": "infonce", "infonce.temperature": "0.2", "seed": 5, "mpt.margin": "-1"}
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
    only_pulls = ask(client, "contrast", sentences=LINES, objective="byol")
    assert [row[2] for row in table(only_pulls, 3)[1:]] == ["–"] * 3
    assert (html.count('class="bar"'), only_pulls.count('class="bar"')) == (3, 0)
    undefined = ask(client, "contrast", sentences=LINES, objective="mpt", dropout=0, **{"mpt.margin": "0"})
    assert [row[4] for row in table(undefined, 3)[1:]] == ["–"] * 3  # without a push there is no ratio
    assert "-0.00" not in html + still + undefined


def test_the_table_and_its_file_have_the_same_rows(client):
    page = client.get("/", params={"view": "errors", "task": "sentiment"}).text
    shown = table(page, 0)[1:]
    file = client.get("/" + unescape(re.search(r'href="(explore/errors\.csv\?.*?)"', page)[1]))
    rows = list(csv.DictReader(io.StringIO(file.text)))
    assert [row["row"] for row in rows] == [row[0] for row in shown] != []
    confidences = [float(row["confidence"]) for row in rows]
    assert confidences == sorted(confidences, reverse=True)
    link = unescape(re.search(rf'href="([^"]*)" aria-label="predict row {rows[0]["row"]}"', page)[1])
    assert rows[0]["sentence"] in unescape(client.get("/" + link).text.partition("</form>")[0])


MISTAKES = [
    ("predict", {"first": " ", "second": "\u200b"}, 422, "no text"),
    ("predict", {"first": "a" * 201}, 422, "201 characters"),
    ("predict", {"model": "three"}, 404, "no model"),
    ("predict", {"effects": "magic"}, 422, "effects"),
    ("neighbours", {"task": "taste"}, 404, "no dev set of taste; there are: sentiment"),
    ("neighbours", {"task": "", "own": "a\nb"}, 422, "2 different sentences; expected at least 3"),
    ("neighbours", {"task": "", "own": "\n".join(map(str, range(2001)))}, 422, "more than 2,000"),
    ("contrast", {"sentences": "a\na "}, 422, "1 different sentences; expected 2 to 12"),
    ("contrast", {"sentences": "\n".join(map(str, range(13)))}, 422, "expected 2 to 12"),
    ("contrast", {"objective": "cosine"}, 422, "learns from labels"),
    ("contrast", {"infonce.temperature": "0"}, 422, "at least 1e-06"),
    ("contrast", {"infonce.heat": "1"}, 422, "no parameter"),
    ("contrast", {"dropout": "1"}, 422, "dropout: Input should be less than or equal to 0.9"),
    ("predict", {"first": " ", "second": "Snow"}, 422, "only a second text; type the first one, too"),
    ("neighbours", {"query": " "}, 422, "no text; type a sentence"),
    ("errors", {"task": "taste"}, 404, "no dev set"),
    ("errors", {"start": "-1"}, 422, "start"),
]


@pytest.mark.parametrize(("view", "form", "status", "error"), MISTAKES)
def test_mistakes_are_explained(client, view, form, status, error):
    answer = client.post("/", data={"view": view, **form})
    assert answer.status_code == status
    assert error in unescape(re.search(r'role="alert">(.*?)</p>', answer.text)[1])


def test_fields_that_no_form_has_change_nothing_and_many_are_refused(client):
    page = client.get("/", params={"_fields_set": 1, "cls": 1, "__class__": 1, "first": "A gem."})
    assert page.text == client.get("/", params={"first": "A gem."}).text
    assert client.post("/", content=b"a=1&" * 101).json() == {"error": "more than 100 fields"}


def test_other_sites_make_nothing_compute(client):
    """Browsers send such a form to any address without asking."""
    answer = client.post("/", data={"first": "A gem."}, headers={"Sec-Fetch-Site": "cross-site"})
    assert (answer.status_code, "<h2>" in answer.text) == (200, False)


def test_the_file_of_a_task_has_its_name(models, dev_sets):
    """RFC 5987: a header has only Latin letters."""
    task = replace(models["one"].tasks["sentiment"], name="日本")
    own = {"one": bare(models["one"], {"日本": task})}
    with TestClient(create_app(own, Limits(), dev_sets={"日本": dev_sets["sentiment"]})) as client:
        file = client.get("/explore/errors.csv", params={"task": "日本", "model": "one"})
    assert file.status_code == 200
    name = file.headers["content-disposition"].partition("filename*=UTF-8''")[2]
    assert unquote(name) == "日本-dev.csv"


def test_a_browser_asks_for_the_token_as_a_password(models):
    with TestClient(create_app(models, Limits(), token="sesame")) as client:
        for path in ("/", "/explore/errors.csv"):
            assert client.get(path).status_code == 401
        assert client.get("/").headers["www-authenticate"] == "Basic"
        counts = client.get("/metrics", auth=("", "sesame")).text
        assert 'multitask_requests_total{path="/",status="401"} 2.0' in counts
        passwords = {"sesame": 200, "simsim": 401, "": 401, "sesame:": 401}
        assert {word: client.get("/", auth=("", word)).status_code for word in passwords} == passwords
        assert client.get("/", headers={"Authorization": "Basic ses"}).status_code == 401


@pytest.mark.skipif(not processor_has_bf16(), reason="this processor has no products in bf16")
def test_layers_without_gradients_are_asked_for_none(models):
    """`serve` has them."""
    model = copy.deepcopy(models["one"])
    model.encoder.model = Bf16Model(model.encoder.model)
    with TestClient(create_app({"a": model}, Limits())) as client:
        page = client.get("/").text
        assert re.findall(r'href="\?view=(\w+)', page.partition("</nav>")[0]) == ["predict", "neighbours"]
        assert "integrated" not in page
        for form in ({"view": "contrast"}, {"view": "predict", "effects": "integrated_gradients"}):
            answer = client.get("/", params=form)  # never numbers of other layers' gradients alone
            assert (answer.status_code, "layers for inference" in answer.text) == (422, True)


def test_an_encoder_without_tasks_has_neighbours_and_contrasts(models, small_data):
    own = {"bare": bare(models["one"])}
    with TestClient(create_app(own, Limits(), dev_sets=load_dev_sets(own, small_data, 10))) as client:
        ask(client, "neighbours", query="a", task="paraphrase")
        ask(client, "contrast", sentences=LINES)
        assert "no tasks" in ask(client, "predict", first="a")
        refused = client.get("/", params={"view": "errors", "task": "sentiment"})
        assert (refused.status_code, "bare has no task sentiment" in refused.text) == (404, True)
