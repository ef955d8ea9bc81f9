import pytest
from translate.storage.xliff import xlifffile

from tests.documents.samples import XLIFF, XLIFF2, same, translated, upper


def test_targets_are_filled_and_finished_ones_stay() -> None:
    store = xlifffile.parsestring(translated("xliff", XLIFF, upper))
    found = {unit.getid().split("\x04")[-1]: unit for unit in store.units}
    assert [found[i].target for i in "2346"] == ["Tasse", "TEA", "CAKE", "ONE"]
    assert found["5"].target is None and str(found["2"].xmlelement.find(".//{*}target").get("state")) == "final"
    for i in "1346":
        target = found[i].xmlelement.find("{*}target")
        assert target.get("state") == "needs-review-translation" and target.get("state-qualifier") == "mt-suggestion"
    assert store.gettargetlanguage() == "de"
    assert b'>CLICK <g id="1">HERE</g> NOW<x id="2"/>!</target>' in translated("xliff", XLIFF, upper)


@pytest.mark.parametrize("data", [XLIFF, XLIFF2])
def test_a_second_time_changes_nothing(data: bytes) -> None:
    once = translated("xliff", data, upper)
    assert translated("xliff", once, same) == once


def test_all_lines_without_a_target_stay() -> None:
    result = translated("xliff", XLIFF, upper).split(b"\n")
    for line in XLIFF.split(b"\n"):
        if b"target" not in line and b"<file" not in line and b'id="6"' not in line:
            assert line in result


def test_version_2_has_its_own_states() -> None:
    result = translated("xliff", XLIFF2, upper)
    assert b'trgLang="de"' in result.split(b"\n")[0]
    segment = (
        b'<segment id="s1" state="translated"><source>good <pc id="1">tea</pc>.</source><target>GOOD <pc id="1">TEA'
    )
    assert segment in result
    assert b'<segment id="s2" state="final"><source>cup</source><target>Tasse</target></segment>' in result


def test_translate_no_holds_for_what_is_inside() -> None:
    data = XLIFF.replace(b"<body>", b'<body><group translate="no">').replace(b"</body>", b"</group></body>")
    assert translated("xliff", data, upper).count(b"mt-suggestion") == 0


def test_a_target_of_another_prefix_and_of_cdata() -> None:
    data = (
        b'<x:xliff version="1.2" xmlns:x="urn:oasis:names:tc:xliff:document:1.2"><x:file source-language="en"><x:body>'
        b"<x:trans-unit id='1'><x:source>a <![CDATA[<b> & c]]></x:source></x:trans-unit></x:body></x:file></x:xliff>"
    )
    result = translated("xliff", data, upper)
    assert (
        b'<x:target state="needs-review-translation" state-qualifier="mt-suggestion">A &lt;b&gt; &amp; C</x:target>'
        in result
    )


@pytest.mark.parametrize(
    "marked", ['<mrk mtype="protected">Tea<g id="1"/></mrk>', '<mrk id="1" translate="no">Tea</mrk>']
)
def test_what_is_marked_in_a_sentence_stays(marked: str) -> None:
    data = XLIFF.replace(b"<source>tea</source>", f"<source>good {marked} here</source>".encode())
    assert f">GOOD {marked} HERE</target>".encode() in translated("xliff", data, upper)


@pytest.mark.parametrize("target", ["<target><!-- a --></target>", "<target><![CDATA[]]></target>"])
def test_a_target_without_text_is_filled(target: str) -> None:
    data = XLIFF.replace(b"<target/>", target.encode())
    assert b">CAKE</target>" in translated("xliff", data, upper)
