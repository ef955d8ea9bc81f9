"""The page itself, read by a parser: complete, escaped, without anything from outside."""

import lxml.html
import pytest

from mt.evaluation.curves import chart
from mt.evaluation.details import by_frequency, by_length
from mt.evaluation.metrics import score_with_intervals
from mt.evaluation.report import Section, best_and_worst, most_different, render
from mt.evaluation.significance import compare_systems

EVIL = '<script>alert("1")</script> & <b>茶</b> "\'>'
SOURCES = [EVIL, "two", "three"]
REFERENCES = [EVIL, "the second green tea", "the third"]
HYPOTHESES = ["<img src=x onerror=y>", "the second red tea", "the third"]
OTHERS = [EVIL, "the second green tea", "a third"]


@pytest.fixture(scope="module")
def page() -> lxml.html.HtmlElement:
    lists, signature = best_and_worst(SOURCES, HYPOTHESES, [REFERENCES])
    more, _ = most_different(SOURCES, {"a<i>": HYPOTHESES, "b&": OTHERS}, [REFERENCES])
    section = Section(
        "set <x>",
        {"Fact & more": "<u>"},
        scores=list(score_with_intervals(HYPOTHESES, [REFERENCES], "en").values()),
        comparisons=compare_systems({"a<i>": HYPOTHESES, "b&": OTHERS}, [REFERENCES], "en"),
        lengths=by_length(SOURCES, HYPOTHESES, [REFERENCES], "13a"),
        frequencies=by_frequency(HYPOTHESES, REFERENCES, ["the third"], "13a"),
        notes=["a note with <s>"],
        chrf_signature=signature,
        lists=[*lists, *more],
    )
    charts = [chart("Loss <y>", "note <z>", {"training": [(1, 2.0), (9, 1.0)], "validation": [(9, 1.5)]})]
    return lxml.html.document_fromstring(render("Report <t>", "en", charts, [section]).decode())


def test_texts_are_escaped(page: lxml.html.HtmlElement) -> None:
    assert page.xpath("//script | //img | //b[. = '茶'] | //i | //u | //s") == []
    assert page.findtext(".//title") == "Report <t>"
    texts = [element.text_content() for element in page.xpath("//article//dd")]
    assert set(texts) == {*SOURCES, *REFERENCES, *HYPOTHESES, *OTHERS}, "each as it was, to the character"


def test_nothing_comes_from_outside(page: lxml.html.HtmlElement) -> None:
    links = page.xpath("//@href | //@src | //@data | //@action")
    identifiers = page.xpath("//@id")
    assert links and {link.removeprefix("#") for link in links} <= set(identifiers)
    assert len(identifiers) == len(set(identifiers))
    (style,) = page.xpath("//style/text()")
    assert "url(" not in style and "@import" not in style and "prefers-color-scheme: dark" in style
    assert not page.xpath("//@*[starts-with(name(), 'on')]")


def test_every_score_has_its_signature(page: lxml.html.HtmlElement) -> None:
    signatures = [code.text_content() for code in page.xpath("//code")]
    for name in ("BLEU", "chrF2", "chrF2++", "TER"):
        assert any(code.startswith(f"{name}|nrefs:1|bs:1000|seed:12345|case:") for code in signatures)
        assert any(code.startswith(f"{name}|nrefs:1|bs:1000|ar:10000|seed:12345|") for code in signatures)
    assert any(code.startswith("chrF2 of a sentence|nrefs:1|case:mixed") for code in signatures)
    cells = [cell.text_content() for cell in page.xpath("//table[1]//td[@class='big']")]
    scores = score_with_intervals(HYPOTHESES, [REFERENCES], "en").values()
    assert cells[:4] == [f"{score.value:.2f}" for score in scores]


def test_it_can_be_read_by_keyboard_and_without_seeing(page: lxml.html.HtmlElement) -> None:
    assert page.get("lang") == "en"
    assert len(page.xpath("//details/summary")) == len(page.xpath("//details")) >= 4
    assert all(region.get("tabindex") == "0" for region in page.xpath("//div[@class='scroll']"))
    (svg,) = page.xpath("//*[local-name() = 'svg']")
    assert "training, last at update 9: 1" in svg.get("aria-label")
    marks = [mark.text_content() for mark in page.xpath("//article//mark")]
    assert "red" in marks and "green" in marks


def test_worst_and_best_share_no_sentence() -> None:
    lines = [f"line number {number}" for number in range(30)]
    output = [line if number % 2 else line.replace("number", "n") for number, line in enumerate(lines)]
    (worst, best), _ = best_and_worst(None, output, [lines])
    assert (len(worst.sentences), len(best.sentences)) == (20, 10)
    numbers = {one.number for found in (worst, best) for one in found.sentences}
    assert numbers == set(range(1, 31))
    assert all(one.outputs[0].chrf == 100 for one in best.sentences) and worst.sentences[0].outputs[0].chrf < 100


def test_systems_differ_most_where_chrf_does() -> None:
    (gains, losses), _ = most_different(SOURCES, {"a": HYPOTHESES, "b": OTHERS}, [REFERENCES])
    assert [one.number for one in gains.sentences] == [1, 2] and [one.number for one in losses.sentences] == [3]
    assert gains.title == "b better than a" and gains.note.startswith("2 of 3 sentences")
