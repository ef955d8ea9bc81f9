from pathlib import Path

from translate.storage.tmx import tmxfile

from tests.documents.samples import TMX, same, translated, upper


def pairs(data: bytes, path: Path) -> list[tuple[str, str | None]]:
    """Returns what translate-toolkit reads."""
    path.write_bytes(data)
    store = tmxfile(path.open("rb"), sourcelanguage="en", targetlanguage="de")
    return [(unit.source, unit.target) for unit in store.units]


def test_units_without_the_target_language_get_it(tmp_path: Path) -> None:
    result = translated("tmx", TMX, upper)
    found = pairs(result, tmp_path / "a.tmx")
    assert len(found) == 4 and found[1] == ("cup", "Tasse")
    assert b'<seg>I <bpt i="1">&lt;B></bpt>LOVE<ept i="1">&lt;/B></ept> TEA &amp; PIE<ph/>.</seg>' in result
    assert b'<tuv xml:lang="de"><seg>TWO LINES</seg>' in result
    assert translated("tmx", result, same) == result


def test_all_else_stays_to_the_byte() -> None:
    new = translated("tmx", TMX, upper)
    for line in new.split(b"\n"):
        if b'xml:lang="de"' in line and b"Tasse" not in line:
            new = new.replace(line + b"\n", b"" if line.rstrip().endswith(b"</tuv>") else b"\1", 1)
    assert new.replace(b"\1      </tuv>\n", b"") == TMX


def test_the_language_is_named_as_the_source_names_it() -> None:
    data = b'<tmx><body><tu><tuv lang="EN"><seg>tea<hi type="x"> cup</hi></seg></tuv></tu></body></tmx>'
    assert b'</tuv><tuv lang="de"><seg>TEA<hi type="x"> CUP</hi></seg></tuv></tu>' in translated("tmx", data, upper)


def test_utf_16_and_characters_that_an_encoding_lacks() -> None:
    text = '<?xml version="1.0" encoding="%s"?><tmx><tu><tuv xml:lang="en"><seg>caf\xe9</seg></tuv></tu></tmx>'
    wide = translated("tmx", (text % "utf-16").encode("utf-16"), upper)
    assert "<seg>CAF\xc9</seg>" in wide.decode("utf-16")
    narrow = translated("tmx", (text % "iso-8859-1").encode("latin-1"), lambda s: ["\xc9茶" for _ in s])
    assert b"<seg>\xc9&#33590;</seg>" in narrow


def test_an_attribute_may_have_an_angle_bracket() -> None:
    data = b'<tmx><tu><tuv xml:lang="en" creationid="a>b">\n<seg>tea</seg></tuv></tu></tmx>'
    assert b'</tuv><tuv xml:lang="de">\n<seg>TEA</seg></tuv></tu>' in translated("tmx", data, upper)
