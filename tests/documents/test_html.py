import pytest
from selectolax.lexbor import LexborHTMLParser

from tests.documents.samples import HTML, same, translated, upper


def body(page: str) -> bytes:
    return translated("html", page.encode(), upper)


def test_exactly_the_read_text_changes() -> None:
    before, after = (LexborHTMLParser(data) for data in (HTML, translated("html", HTML, upper)))
    kept = {"pre", "script", "style", "code", "span"}
    for old, new in zip(before.root.traverse(include_text=True), after.root.traverse(include_text=True), strict=True):
        assert old.tag == new.tag
        if old.tag == "-text":
            words = " ".join((old.text_content or "").split())
            is_read = old.parent.tag not in kept
            assert " ".join((new.text_content or "").split()) == (words.upper() if is_read else words)
        elif old.tag == "img":
            assert new.attributes == {**old.attributes, "alt": "A CUP"}
        elif old.tag == "meta" and "name" in old.attributes:
            assert new.attributes == {**old.attributes, "content": "ALL ABOUT TEA"}
        elif not old.tag.startswith(("-", "_", "!")):
            assert new.attributes == old.attributes


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>a < b & c &lt;d&gt; &copy; &nosuch;</p>", "<p>A &lt; B &amp; C &lt;d&gt; © &amp;nosuch;</p>"),
        ("<p>one<br>two</p>", "<p>ONE<br>TWO</p>"),
        ("<p>go <code>X<b>y</b></code> on</p>", "<p>GO <code>X<b>y</b></code> ON</p>"),
        ("<p translate=no>one <b>two</b></p><p>three</p>", "<p translate=no>one <b>two</b></p><p>THREE</p>"),
        ("<p>a <i class='x notranslate'>b</i> c</p>", "<p>A <i class='x notranslate'>b</i> C</p>"),
        ("<a title='it&#39;s \"x\"' href=a>b</a>", "<a title='IT&#x27;S &quot;X&quot;' href=a>B</a>"),
        ('<input type=submit value="go"><input value="k">', '<input type=submit value="GO"><input value="k">'),
        ("text without tags", "TEXT WITHOUT TAGS"),
        ("<p>open <b>never closed", "<p>OPEN <b>NEVER CLOSED"),
        ("<![CDATA[x]]><?php echo 1 ?><p>a", "<![CDATA[x]]><?php echo 1 ?><p>A"),
        ("<p>see http://x.org/a now", "<p>SEE http://x.org/a NOW"),
        ("<p>c&# a</p><p>b&#; c</p><p>d", "<p>C&amp;# A</p><p>B&amp;#; C</p><p>D"),
        ("<p>a</>b</p>", "<p>A</>B</p>"),
        ("<img src=a alt=cup title=é>", '<img src=a alt="CUP" title="É">'),
        ("<p>a</p><p class='x", "<p>A</p><p class='x"),
        ("<p>a <a href='x>b</a> c</p>", "<p>A <a href='x>B</a> C</p>"),
        (
            "<p translate=no title='a'>b</p><img translate=no alt='a'>",
            "<p translate=no title='a'>b</p><img translate=no alt='a'>",
        ),
        ("<p>a\xa0b <i title='X\xa0Y'></i>c", "<p>A&nbsp;B <i title='X\xa0Y'></i>C"),
        ("<xmp>a & b</xmp><p>c", "<xmp>a & b</xmp><p>C"),
        ("<svg><text>keep</text></svg><p>a", "<svg><text>keep</text></svg><p>A"),
    ],
)
def test_cases(page: str, expected: str) -> None:
    assert body(page).decode() == expected
    assert translated("html", page.encode(), same).decode() == page


def test_the_pages_encoding_is_kept() -> None:
    page = '<meta charset="iso-8859-1"><p>caf\xe9'.encode("latin-1")
    assert translated("html", page, upper) == '<meta charset="iso-8859-1"><p>CAF\xc9'.encode("latin-1")
    assert translated("html", page, lambda s: ["茶" for _ in s]).endswith(b"<p>&#33590;")


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ("gb2312", "喆 a".encode("gbk")),
        ("ISO-8859-1", b"\x93a\x94"),
        ("shift_jis", "① a".encode("cp932")),
        ("utf-16", b"\xc3\xa4 a"),
    ],
)
def test_an_encoding_is_what_browsers_read_by_its_name(named: str, text: bytes) -> None:
    page = f"<meta charset={named}><p>".encode() + text
    asked = []
    assert translated("html", page, lambda sentences: asked.extend(sentences) or sentences) == page
    assert asked in (["喆 a"], ["“a”"], ["① a"], ["ä a"])


def test_a_declaration_that_the_parser_does_not_know_is_a_named_error() -> None:
    with pytest.raises(ValueError, match="a.html: is no web page"):
        body("<![a[b]]><p>c")
