from collections import Counter
from pathlib import Path

import pytest

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, read_corpus

NAME = "data.train.main"
MEMORY = """<tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en-US"><seg>I <bpt i="1">[b]</bpt>love<ept i="1">[/b]</ept> china<ph x="1"/>.</seg></tuv>
<tuv xml:lang="zh_CN"><seg>我爱中国。</seg></tuv></tu>
<tu><tuv lang="EN"><seg>Tea</seg></tuv><tuv lang="de"><seg>Tee</seg></tuv><tuv lang="ZH-cn"><seg>茶</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Only source</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Two
 lines</seg></tuv><tuv xml:lang="zh"><seg>两行</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg></seg></tuv><tuv xml:lang="zh"><seg>空</seg></tuv></tu>
</body></tmx>"""


def unit(*variants: tuple[str, str]) -> str:
    return "<tu>" + "".join(f'<tuv xml:lang="{code}"><seg>{seg}</seg></tuv>' for code, seg in variants) + "</tu>"


def memory(*units: str, head: str = "") -> str:
    return f'{head}<tmx version="1.4"><body>{"".join(units)}</body></tmx>'


def pairs(folder: Path, content: str | bytes, data: DataConfig | None = None, counts: Counter | None = None, **fields):
    path = folder / "t.tmx"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    config, data = CorpusConfig(path=str(path), **fields), data or DataConfig()
    check_corpus(config, data, NAME)
    return list(read_corpus(config, data, NAME, counts))


def error(folder: Path, content: str | bytes, data: DataConfig | None = None) -> str:
    with pytest.raises(ValueError) as caught:
        pairs(folder, content, data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_inline_codes_language_variants_and_units_without_a_side(tmp_path) -> None:
    counts: Counter[str] = Counter()
    assert pairs(tmp_path, MEMORY, counts=counts) == [
        ("I love china.", "我爱中国。"),
        ("Tea", "茶"),
        ("Two lines", "两行"),
    ]
    assert counts == {"unit without target": 1, "unit without source": 1}
    german = DataConfig(source_language="de", target_language="zh")
    assert pairs(tmp_path, MEMORY, german) == [("Tee", "茶")]
    message = error(tmp_path, MEMORY, DataConfig(target_language="fr"))
    assert "t.tmx: no unit has the language fr; there are en-US, zh_CN, EN, de, ZH-cn, en, zh: set" in message


def test_of_several_variants_the_same_code_wins_then_the_first(tmp_path) -> None:
    several = unit(("en-GB", "colour"), ("en", "color"), ("zh-TW", "顏色"), ("zh-CN", "颜色"), ("zh-CN", "色"))
    assert pairs(tmp_path, memory(several)) == [("color", "顏色")]
    assert pairs(tmp_path, memory(several), source_field="en_gb", target_field="zh-cn") == [("colour", "颜色")]


def test_what_codes_hold_is_left_out_and_what_marks_text_stays(tmp_path) -> None:
    segment = (
        'a<hi type="x">b<it pos="begin">{<sub>s</sub>}</it></hi>c<ph type="lb"/>d<!-- no -->e<![CDATA[<f>]]>&#65;&lt;'
    )
    assert pairs(tmp_path, memory(unit(("en", segment), ("zh", "x")))) == [("abc de<f>A<", "x")]


def test_spaces_stay_where_no_line_ends(tmp_path) -> None:
    assert pairs(tmp_path, memory(unit(("en", " a\u2028b  "), ("zh", "\n\t x\n ")))) == [(" a\u2028b  ", "x")]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030", "iso-8859-1"])
def test_encodings(tmp_path, encoding: str) -> None:
    text = "é" if encoding == "iso-8859-1" else "茶"
    declared = encoding.replace("-sig", "")
    content = memory(unit(("en", "tea"), ("zh", text)), head=f'<?xml version="1.0" encoding="{declared}"?>')
    assert pairs(tmp_path, content.encode(encoding)) == [("tea", text)]


def test_entities_are_never_expanded(tmp_path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("SECRET")
    bomb = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
    for head in (f'<!DOCTYPE tmx [<!ENTITY e0 "x">{bomb}]>', f'<!DOCTYPE tmx [<!ENTITY e9 SYSTEM "{secret}">]>'):
        message = error(tmp_path, memory(unit(("en", "a&e9;b"), ("zh", "x")), head=head))
        assert "t.tmx: declares the entity 'e" in message
    outside = f'<!DOCTYPE tmx SYSTEM "{secret}">'
    assert pairs(tmp_path, memory(unit(("en", "tea"), ("zh", "x")), head=outside)) == [("tea", "x")]
    message = error(tmp_path, memory(unit(("en", "a&nbsp;b"), ("zh", "x")), head=outside))
    assert "t.tmx, unit 1: has the entity &nbsp;, which is not expanded" in message


def test_an_entity_that_nobody_declared_is_named_with_its_line(tmp_path) -> None:
    units = [unit(("en", "tea"), ("zh", "x"))] * 3000
    message = error(tmp_path, memory(*units, unit(("en", "a&nbsp;b"), ("zh", "x")), *units))
    line = memory(*units).split("</body>")[0].count("\n") + 1
    assert f"t.tmx, line {line}: is not XML (Entity 'nbsp' not defined): write its character" in message


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (MEMORY[:-40], "t.tmx, line 8: is not XML"),
        (MEMORY.replace("</seg></tuv></tu>", "</seg></tu>", 1), "t.tmx, line 3: is not XML"),
        (b"\xff\xfe\x00", "t.tmx, line 1: is not XML"),
        ("tea", "t.tmx, line 1: is not XML"),
        ("<html><tu/></html>", "t.tmx: the root element is html: must be tmx"),
        ("<html/>", "t.tmx: the root element must be tmx"),
        (memory(), "t.tmx: there is no pair of texts"),
        ("<tmx>" + "<a>" * 100_000, "t.tmx, line 1: is not XML"),
    ],
)
def test_what_is_no_memory_is_named(tmp_path, content: str | bytes, part: str) -> None:
    assert part in error(tmp_path, content)


def test_lxml_is_imported_late_and_named_where_it_is_missing(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lxml", None)
    assert "reading it needs the package lxml: pip install 'mt[corpora]'" in error(tmp_path, MEMORY)
