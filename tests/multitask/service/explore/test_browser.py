"""The page in Debian's Chromium: by keyboard, wide and narrow, light and dark.

axe-core checks each view against the rules of WCAG that a program can check.
"""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multitask.service.app import LOOPBACK, create_app
from multitask.service.explore_routes import VIEWS
from multitask.service.limits import Limits
from tests.multitask.service.conftest import served

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
SIZES = {"wide light": {"width": 1280, "height": 900}, "narrow dark": {"width": 390, "height": 740}}
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
    with served(create_app(models, Limits(), "sesame", LOOPBACK, dev_sets)) as address:
        yield address


@pytest.fixture(params=SIZES)
def page(request, browser, address) -> Iterator[Page]:
    context = browser.new_context(
        viewport=SIZES[request.param],
        color_scheme=request.param.split()[1],
        http_credentials={"username": "", "password": "sesame"},
    )
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda sent: asked.append(sent.url))
    page.goto(address)
    yield page
    assert {url.startswith((address, "data:")) for url in asked} == {True}
    context.close()


def tab_to(page: Page, goal: Any) -> None:
    """Press the tab key until this element has the focus."""
    for _ in range(40):
        if goal.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail("the tab key does not lead there")


def test_a_pair_by_keyboard_with_both_models(page):
    tab_to(page, page.get_by_role("textbox", name="Sentence", exact=True))
    page.keyboard.press("Control+a")
    page.keyboard.type(EVIL)
    page.keyboard.press("Tab")
    page.keyboard.type("Dogs are running.")
    tab_to(page, page.get_by_role("button", name="Predict", exact=True))
    with page.expect_navigation():
        page.keyboard.press("Enter")
    headings = page.locator(".answers h3").all_inner_texts()
    assert [heading.partition(":")[0] for heading in headings] == ["paraphrase", "similarity"] * 2
    assert page.locator("main img, main b").count() == 0
    assert "hacked" not in page.title()


def test_a_form_shows_what_its_choices_need(page):
    page.get_by_role("link", name="Neighbours").click()
    own = page.get_by_role("textbox", name="Your own sentences")
    assert own.is_hidden()
    page.get_by_label("Search in").select_option("your own sentences")
    assert own.is_visible()
    page.get_by_role("link", name="Contrast").click()
    assert page.locator("fieldset:visible").count() == 1
    page.get_by_label("Objective").select_option("vicreg")
    page.get_by_role("spinbutton", name="dissipation").fill("0.3")
    page.get_by_role("button", name="Compute").click()
    assert page.get_by_role("spinbutton", name="dissipation").input_value() == "0.3"
    page.get_by_role("link", name="Errors").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download these rows").click()
    assert download.value.suggested_filename == "sentiment-dev.csv"


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_and_a_phone_scrolls_tables_only(page, view, request):
    page.get_by_role("link", name=view.capitalize(), exact=True).first.click()
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    if SCREENSHOTS:
        name = request.node.callspec.id.replace(" ", "-")
        page.screenshot(path=Path(SCREENSHOTS, f"{name}.png"), full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    if AXE is None:
        pytest.skip("needs: pip install axe-playwright-python")
    page.evaluate(Path(*AXE.submodule_search_locations, "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    problems = [
        f"{rule['id']}: {node['html'][:200]} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
    assert problems == []
    assert len(found["passes"]) > 20
