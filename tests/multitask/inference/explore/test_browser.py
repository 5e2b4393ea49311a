"""The page in Debian's Chromium, used as a person would: by keyboard and mouse, wide and narrow, light and dark.

axe-core checks each view against the rules of WCAG that a program can check.
"""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multitask.inference.explore.routes import ListRows, add_page, chosen_rows
from multitask.inference.serve.app import create_app
from multitask.inference.serve.guard import LOOPBACK
from multitask.inference.serve.limits import Limits
from tests.multitask.inference.serve.conftest import served

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SIZES = {"wide light": {"width": 1280, "height": 900}, "narrow dark": {"width": 390, "height": 740}}
VIEWS = ("Predict", "Neighbours", "Contrast", "Errors")
SCREENSHOTS = os.environ.get("SCREENSHOTS")
"""A folder for pictures to look at."""
EVIL = "<img src=x onerror=\"document.title='hacked'\"> <b>bold</b>"
AXE = importlib.util.find_spec("axe_playwright_python")
"""The package brings axe-core's script."""

Page = Any


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(models, dev_sets) -> Iterator[str]:
    app = create_app(models, Limits(), token="sesame", hosts=LOOPBACK)
    add_page(app, dev_sets)
    with served(app) as address:
        yield address


@pytest.fixture(params=SIZES)
def page(request, browser, address) -> Iterator[Page]:
    colours = request.param.split()[1]
    page = browser.new_context(viewport=SIZES[request.param], color_scheme=colours).new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url))
    page.goto(address)
    page.get_by_role("textbox", name="Token").fill("sesame")
    page.keyboard.press("Enter")
    quiet(page)
    yield page
    # A phone scrolls tables, not the page.
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert page.title() != "hacked"
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    assert problems == []
    assert {url.startswith((address, "blob:", "data:")) for url in asked} == {True}
    page.context.close()


def quiet(page: Page) -> None:
    """Wait until nothing is computed. The status says so from the event on that asks for it."""
    page.locator("#status:empty").wait_for(state="attached")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)
    quiet(page)


def tab_to(page: Page, goal: Any) -> None:
    """Press the tab key until this element has the focus."""
    for _ in range(40):
        if goal.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail("the tab key does not lead there")


def test_a_pair_by_keyboard_with_both_models(page):
    tab_to(page, page.get_by_role("textbox", name="Sentence", exact=True))
    press(page, "Control+a")
    page.keyboard.type(EVIL)
    press(page, "Tab")
    page.keyboard.type("Dogs are running.")
    tab_to(page, page.get_by_role("button", name="Predict", exact=True))
    press(page, "Enter")
    headings = page.locator(".answers h3").all_inner_texts()
    assert [heading.partition(":")[0] for heading in headings] == ["paraphrase", "similarity"] * 2
    assert page.locator(".answers .word[title]").count() == 4 * len(f"{EVIL} Dogs are running.".split())
    assert page.locator("main img, main b").count() == 0
    page.get_by_label("Compare with").select_option("no other")
    quiet(page)
    assert page.locator(".answers h3").count() == 2


def test_neighbours_by_keyboard(page, dev_sets):
    tab_to(page, page.get_by_role("link", name="Neighbours"))
    press(page, "Enter")
    known = dev_sets["sentiment"].sentences
    page.get_by_role("textbox", name="Sentence", exact=True).fill(next(iter(known)))
    tab_to(page, page.get_by_role("button", name="Find"))
    press(page, "Enter")
    assert page.locator("[data-view=neighbours] td.number").first.inner_text() == "1.000"
    tab_to(page, page.locator("svg.map").first)
    shown = set()
    for _ in known:
        press(page, "ArrowRight")
        shown.add(page.locator(".point").first.inner_text())
    assert shown == {f"{text} ({label})" for text, label in known.items()}
    own = page.get_by_role("textbox", name="Your own sentences")
    assert own.is_hidden()
    page.get_by_label("Search in").select_option("your own sentences")
    quiet(page)
    own.fill("One.\nTwo.")
    page.get_by_role("button", name="Find").click()
    page.locator("#status.error", has_text="one: 2 different sentences; expected at least 3").wait_for()


def test_contrast(page):
    page.get_by_role("link", name="Contrast").click()
    quiet(page)
    assert page.locator(".matrix").count() == 6  # three of each model
    before = page.locator(".anchors").first.inner_text()
    page.get_by_role("spinbutton", name="temperature").focus()
    press(page, "ArrowUp", "Tab")  # a softer softmax
    assert page.locator(".anchors").first.inner_text() != before
    page.get_by_label("Objective").select_option("vicreg")
    quiet(page)
    field = page.get_by_role("spinbutton", name="dissipation")
    assert field.input_value() == ""  # off
    field.fill("0.3")
    press(page, "Tab")
    assert page.locator(".anchors").count() == 2


def test_errors(page, dev_sets):
    """The worst error is the first row; filter, download, and try a row by keyboard."""
    page.get_by_role("link", name="Errors").click()
    quiet(page)
    expected = chosen_rows(dev_sets["sentiment"].rows["one"], ListRows(task="sentiment", only_wrong=True))
    assert page.locator("#errors-table tbody td:first-child").all_inner_texts() == expected.row.astype(str).tolist()
    tab_to(page, page.get_by_role("combobox", name="Label"))
    page.get_by_role("combobox", name="Label").select_option(label := expected.gold.iloc[0])
    quiet(page)
    assert page.evaluate("document.activeElement.id") == "errors-gold"  # it is drawn again, and keeps the focus
    kept = expected[expected.gold == label]
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    assert download.value.suggested_filename == "sentiment-dev.csv"
    assert len(Path(download.value.path()).read_text(encoding="utf-8").splitlines()) == len(kept) + 1
    tab_to(page, page.get_by_role("button", name="predict row").first)
    press(page, "Enter")
    assert page.evaluate("document.activeElement.name") == "first"
    assert page.evaluate("document.activeElement.value") == kept.texts.iloc[0][0]
    page.get_by_label("Dev example").select_option(index=1)
    quiet(page)
    assert page.evaluate("document.activeElement.value") == dev_sets["sentiment"].rows["one"].texts[0][0]


def test_axe_finds_nothing(page, request):
    if AXE is None:
        pytest.skip("needs: pip install axe-playwright-python")
    page.evaluate(Path(*AXE.submodule_search_locations, "axe.min.js").read_text(encoding="utf-8"))
    for view in VIEWS:
        page.get_by_role("link", name=view).click()
        quiet(page)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        found = page.evaluate("axe.run()")
        problems = [
            f"{view}: {rule['id']}: {node['html'][:200]} {node['failureSummary']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]
        assert problems == []
        assert len(found["passes"]) > 20
        if SCREENSHOTS:
            name = request.node.callspec.id.replace(" ", "-")
            page.screenshot(path=Path(SCREENSHOTS, f"{view}-{name}.png"), full_page=True)
