from collections import Counter
from pathlib import Path

import pytest

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, read_corpus

NAME = "data.train.main"
OLD = """<?xml version="1.0"?><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en-US" target-language="zh-CN" original="x" datatype="plaintext"><body>
<trans-unit id="1"><source>Red <g id="1">tea</g><x id="2"/></source><target>红<bpt id="1">code</bpt>茶</target>
<alt-trans><source>no</source><target>不</target></alt-trans></trans-unit>
<group translate="no"><trans-unit id="2"><source>code</source><target>code</target></trans-unit>
<trans-unit id="3" translate="yes"><source>rice</source><target>米</target></trans-unit></group>
<trans-unit id="4"><source>a<x id="1" ctype="lb"/>b</source>
<target state="needs-review-translation">甲乙</target></trans-unit>
<trans-unit id="5"><source>c</source><target state="new">c</target></trans-unit>
<trans-unit id="6"><source>d</source></trans-unit>
<trans-unit id="7"><source> </source><target>空</target></trans-unit>
<trans-unit id="8"><source>e</source><target state="translated" state-qualifier="leveraged-mt">机</target></trans-unit>
</body></file></xliff>"""
NEW = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="zh"><file id="f">
<unit id="1"><notes><note>n</note></notes><segment><source>Red <pc id="1">tea</pc><ph id="2"/></source>
<target>红茶</target></segment><ignorable><source> </source></ignorable>
<segment state="initial"><source>x</source><target>x</target></segment>
<segment state="final"><source>rice</source><target>米</target></segment></unit></file></xliff>"""
ALL = {
    "unit without target": 2, "unit without source": 1, "fuzzy unit": 2, "unit not to be translated": 1,
}  # fmt: skip


def pairs(folder: Path, content: str, data: DataConfig | None = None, counts: Counter | None = None, **settings):
    path = folder / "t.xlf"
    path.write_text(content, encoding="utf-8")
    config, data = CorpusConfig(path=str(path), **settings), data or DataConfig()
    check_corpus(config, data, NAME)
    return list(read_corpus(config, data, NAME, counts))


def test_version_1(tmp_path) -> None:
    counts: Counter[str] = Counter()
    assert pairs(tmp_path, OLD, counts=counts) == [("Red tea", "红茶"), ("rice", "米")]
    assert counts == ALL
    counts.clear()
    both = pairs(tmp_path, OLD, counts=counts, include_fuzzy=True)
    assert both == [("Red tea", "红茶"), ("rice", "米"), ("a b", "甲乙"), ("e", "机")]
    assert "fuzzy unit" not in counts


def test_version_2(tmp_path) -> None:
    counts: Counter[str] = Counter()
    assert pairs(tmp_path, NEW, counts=counts) == [("Red tea", "红茶"), ("rice", "米")]
    assert counts == {"unit without target": 1}


@pytest.mark.parametrize("content", [OLD, NEW])
def test_the_other_way_round(tmp_path, content: str) -> None:
    assert pairs(tmp_path, content, DataConfig("zh", "en")) == [("红茶", "Red tea"), ("米", "rice")]


def test_other_languages_are_refused_or_counted(tmp_path) -> None:
    with pytest.raises(ValueError, match="t.xlf: nothing is from de into en; there is en-US > zh-CN: set data.train"):
        pairs(tmp_path, OLD, DataConfig("de", "en"))
    counts: Counter[str] = Counter()
    french = '<file source-language="en" target-language="fr"><body><trans-unit id="1"><source>a</source>'
    two = OLD.replace("<file", french + "<target>b</target></trans-unit></body></file><file", 1)
    assert pairs(tmp_path, two, counts=counts) == [("Red tea", "红茶"), ("rice", "米")]
    assert counts == ALL | {"unit of other languages": 1}


def test_a_missing_target_language_is_taken_for_the_target(tmp_path) -> None:
    assert len(pairs(tmp_path, OLD.replace(' target-language="zh-CN"', ""))) == 2
    assert len(pairs(tmp_path, NEW.replace(' trgLang="zh"', ""), DataConfig("fr", "en"))) == 2


@pytest.mark.parametrize(
    ("content", "part"), [(OLD[:-30], "line 12: is not XML"), ("<tmx/>", "must be xliff"), ("<xliff/>", "no pair")]
)
def test_what_is_no_xliff_is_named(tmp_path, content: str, part: str) -> None:
    with pytest.raises(ValueError, match=part) as caught:
        pairs(tmp_path, content)
    assert "t.xlf" in str(caught.value) and "\n" not in str(caught.value)
