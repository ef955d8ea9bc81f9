"""The page in a real browser: headless Chromium, Debian's, driven by playwright.

MT_BROWSER_RUN: a trained folder from English to Chinese (default runs/demo). Screenshots go to MT_SCREENSHOTS, if set.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from mt.serve.limits import Limits
from tests.serve.small_server import load, make_app, served

ROOT = Path(__file__).parents[2]
RUN = Path(os.environ.get("MT_BROWSER_RUN", ROOT / "runs" / "demo"))
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 120_000  # milliseconds: the machine may have other work
PHONE = {"width": 390, "height": 844}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
    pytest.mark.skipif(not RUN.is_dir(), reason=f"no trained folder {RUN}: make demo, or set MT_BROWSER_RUN"),
]


@pytest.fixture(scope="module")
def url():
    with served(make_app(RUN, Limits(max_characters=10_000), load(RUN, batch_sentences=64))) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    with api.sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@pytest.fixture
def page_of(browser, url):
    contexts = []

    def make(**options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 760}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.problems = []
        page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("request", lambda request: page.problems.extend([request.url] * (not request.url.startswith(url))))
        page.goto(url)
        page.wait_for_selector("#target-language option", state="attached")
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def page(page_of):
    page = page_of()
    yield page
    assert page.problems == []  # nothing from elsewhere, no errors


def translate(page, text, timeout=PATIENCE):
    page.fill("#source", text)
    wait(page, timeout)


def wait(page, timeout=PATIENCE):
    page.wait_for_timeout(300)
    page.wait_for_selector("#target[aria-busy='false']", timeout=timeout)


def until(page, holds):
    """Waits in Python: the page lets no text be run as a script."""
    for _ in range(PATIENCE // 100):
        if holds():
            return
        page.wait_for_timeout(100)
    raise AssertionError("waited for two minutes")


def on_a_word(page):
    return page.evaluate("document.activeElement.classList.contains('word')")


def shoot(page, name):
    folder = os.environ.get("MT_SCREENSHOTS")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def shown(page):
    return page.inner_text("#target").strip()


def test_typing_translates(page):
    page.locator("#source").press_sequentially("I love china", delay=30)
    wait(page)
    assert "中国" in shown(page) and "爱" in shown(page)
    assert page.locator("#target .word").count() >= 3
    assert page.inner_text("#characters") == "12 / 10,000"
    shoot(page, "typed")
    page.click("#clear")
    wait(page)
    assert shown(page) == ""


def test_a_word_shows_what_it_looked_at(page):
    translate(page, "I love china")
    page.hover("#target .word:has-text('中国')")
    assert re.match(r"中国: \d+ % sure; looks at .*china \d+ %", page.inner_text("#looking"))
    marks = page.eval_on_selector_all(
        "#backdrop mark", "all => all.map(each => [each.textContent, each.style.cssText])"
    )
    weights = {text: float(style.split("--weight:")[1].strip(" ;")) for text, style in marks}
    assert max(weights, key=weights.get) == "china"
    shoot(page, "hover")
    page.hover("h1")
    assert page.locator("#backdrop mark").count() == 0


def test_another_word_changes_the_rest(page):
    translate(page, "I love china")
    before = shown(page)
    page.click("#target .word:nth-of-type(2)")
    page.wait_for_selector("#menu [role=option]")
    shoot(page, "alternatives")
    count = page.locator("#menu [role=option]").count()
    assert count >= 3
    rests = page.locator("#menu .rest").all_inner_texts()
    other = next(index for index, rest in enumerate(rests) if rest != before)
    page.click(f"#menu [role=option] >> nth={other}")
    until(page, lambda: shown(page) != before)
    assert shown(page) == rests[other]
    page.wait_for_selector("#target .word")
    assert page.locator("#menu").is_hidden()


def test_by_keyboard_alone(page):
    page.keyboard.type("I love china")  # the text has the focus
    wait(page)
    before = shown(page)
    for _ in range(20):
        page.keyboard.press("Tab")
        if on_a_word(page):
            break
    first = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.textContent")
    assert before.startswith(first) and second and page.inner_text("#looking").startswith(second)
    page.keyboard.press("Enter")
    page.wait_for_selector("#menu [aria-selected=true]")
    page.keyboard.press("ArrowDown")
    chosen = page.inner_text("#menu [aria-selected=true] .rest")
    page.keyboard.press("Enter")
    until(page, lambda: shown(page) == chosen)
    until(page, lambda: on_a_word(page))
    page.keyboard.press("Enter")
    page.wait_for_selector("#menu [aria-selected=true]")
    page.keyboard.press("Escape")
    assert page.locator("#menu").is_hidden() and on_a_word(page)


def test_five_thousand_characters(page):
    text = ("I love china. She reads a good book every day. " * 200)[:4999] + "."
    translate(page, text, timeout=5 * PATIENCE)
    assert shown(page).count("。") > 150
    assert page.locator("#target .word").count() > 500
    assert page.locator("#message").is_hidden()
    height = "each => each.getBoundingClientRect().height"
    assert page.eval_on_selector("#source", height) == page.eval_on_selector("#backdrop", height)
    assert page.eval_on_selector("#source", "each => each.scrollHeight <= each.clientHeight + 1")
    shoot(page, "long")
    translate(page, "x" * 10_001)
    assert page.inner_text("#message") == "This text has 1 characters more than the server takes"


def test_html_stays_text(page):
    page.evaluate("window.hurt = false")
    text = "<img src=x onerror='window.hurt=true'> I love china <script>window.hurt=true</script>"
    translate(page, text)
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.hurt") is False
    assert "<img src=x onerror='window.hurt=true'>" in shown(page)
    page.hover("#target .word >> nth=0")
    assert page.locator("main img, main script").count() == 0
    assert page.eval_on_selector("#backdrop", "each => each.textContent") == text + "\n"


def test_the_glossary_is_kept(page):
    page.click("#glossary-box summary")
    page.fill("#glossary", "china = 中华")
    translate(page, "I love china")
    assert "中华" in shown(page)
    page.fill("#glossary", "china")
    page.wait_for_selector("#message:not([hidden])")
    assert "is not a term, = and its translation" in page.inner_text("#message")


def test_only_the_last_text_is_shown(page):
    for text in ("I love china", "He is a teacher", "This is my book"):
        page.fill("#source", text)
        page.wait_for_timeout(260)
    wait(page)
    last = shown(page)
    translate(page, "This is my book")
    assert shown(page) == last


def test_unsure_words_are_marked(page):
    translate(page, "The parliamentary committee deliberated about zymurgy and obfuscation.")
    assert page.locator("#target.sure .doubt, #target.sure .doubt-strong").count() >= 1
    shoot(page, "unsure")
    page.uncheck("#sure")
    assert page.locator("#target.sure").count() == 0


def test_on_a_phone(page_of):
    page = page_of(viewport=PHONE, has_touch=True, is_mobile=True)
    translate(page, "I love china. She reads a good book every day.")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    boxes = [page.locator(each).bounding_box() for each in ("#source", "#target")]
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]  # one above the other
    page.tap("#target .word >> nth=1")
    page.wait_for_selector("#menu [role=option]")
    box = page.locator("#menu").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
    shoot(page, "phone")
    assert page.problems == []


def test_in_the_dark(page_of):
    page = page_of(color_scheme="dark")
    translate(page, "I love china. The parliamentary committee deliberated about zymurgy.")
    page.hover("#target .word >> nth=1")
    shoot(page, "dark")
    for selector in ("body", ".pane", "#target"):
        assert contrast(page, selector) > 7
    assert contrast(page, "#looking") > 4.5


def test_contrast_by_day(page):
    for selector in ("body", ".pane", "#target"):
        assert contrast(page, selector) > 7
    assert contrast(page, "#characters") > 4.5


def contrast(page, selector):
    """Returns the contrast of text and ground, as WCAG has it."""
    colours = page.eval_on_selector(
        selector,
        """element => {
            const ink = getComputedStyle(element).color;
            while (getComputedStyle(element).backgroundColor === 'rgba(0, 0, 0, 0)') element = element.parentElement;
            return [ink, getComputedStyle(element).backgroundColor];
        }""",
    )

    def luminance(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted(map(luminance, colours), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_page_of_the_api(page, url):
    page.goto(f"{url}/docs")
    page.wait_for_selector("section")
    assert "POST /translate" in page.inner_text("#paths") and "glossary" in page.inner_text("#paths")
    shoot(page, "docs")
