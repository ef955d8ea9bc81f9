"""Every format: what is not human text stays to the byte, and broken input ends in one named error."""

import io
import re
import time
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt.documents.formats import FORMATS, document_format, translate_document
from mt.documents.tables import Fields
from mt.documents.texts import TextTranslator
from tests.documents.samples import SAMPLES, docx, same, translated, upper

IN_PLACE = ["srt", "vtt", "html", "md", "docx"]  # other formats get the translation beside the source


@pytest.mark.parametrize("format", IN_PLACE)
def test_a_translator_that_changes_nothing_leaves_every_byte(format: str) -> None:
    assert translated(format, SAMPLES[format], same) == SAMPLES[format]


@pytest.mark.parametrize("format", [f for f in IN_PLACE if f != "docx"])
def test_line_ends_and_the_byte_order_mark_stay(format: str) -> None:
    data = b"\xef\xbb\xbf" + SAMPLES[format].replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert translated(format, data, same) == data
    changed = translated(format, data, upper)
    assert changed.startswith(b"\xef\xbb\xbf") and b"\r\n" in changed and not re.search(rb"[^\r]\n", changed)


@pytest.mark.parametrize("format", ["po", "tmx", "jsonl", "tsv", "csv"])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_other_documents_only_gain(format: str, line_end: bytes) -> None:
    """Every byte of the source is in the result, in its order."""
    data = SAMPLES[format].replace(b"\r\n", b"\n").replace(b"\n", line_end)
    result = translated(format, data, upper)
    rest = iter(result)
    assert all(byte in rest for byte in data) and len(result) > len(data)
    assert format == "csv" or line_end == b"\n" or not re.search(rb"[^\r]\n", result)


@pytest.mark.parametrize("format", sorted(SAMPLES))
def test_only_words_change(format: str) -> None:
    """An upper-casing translator: with the letters all lower case, in-place documents are what they were."""
    result = translated(format, SAMPLES[format], upper)
    assert result != SAMPLES[format]
    if format in ("srt", "vtt"):
        assert result.lower() == SAMPLES[format].lower()
    if format == "docx":
        before, after = (zipfile.ZipFile(io.BytesIO(data)) for data in (SAMPLES[format], result))
        assert before.namelist() == after.namelist()
        for name in before.namelist():
            assert name == "word/document.xml" or before.read(name) == after.read(name)


@pytest.mark.parametrize("format", sorted(SAMPLES))
def test_sentences_come_as_strings_and_in_order(format: str) -> None:
    asked: list[str] = []

    def translate(sentences: list[str]) -> list[str]:
        asked.extend(sentences)
        return sentences

    translated(format, SAMPLES[format], translate)
    assert asked and all(sentence == sentence.strip() and "\n" not in sentence for sentence in asked)
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize(
    ("format", "data", "message"),
    [
        *[(f, b"", f"a.{f}: the file is empty") for f in FORMATS if f not in ("text", "jsonl", "tsv")],
        *[(f, b"ab\n\xff\xfa\n", f"a.{f}, line 2: ") for f in ("text", "po", "srt", "html", "md", "tmx", "xliff")],
        *[(f, b"ok\n\0\x01\x02", f"a.{f}, line 2: has a NUL") for f in ("text", "srt", "html", "md", "po")],
        ("tsv", b"a\tb\nc\0\td\n", "a.tsv, line 2: has a NUL byte: must be UTF-8"),
        ("po", b'msgid "a"\nmsgstr "b"\nfoo\n', "a.po, line 3: must be a comment or a statement"),
        ("po", b'msgid "a"\n\nmsgid "b"\nmsgstr ""\n', "a.po, line 3: a second msgid in one entry"),
        ("po", b'msgid "a" b"\nmsgstr ""\n', "a.po, line 1: must be"),
        ("po", b'msgid "a"\n', "a.po, line 2: the entry that ends here has no msgstr"),
        ("po", b'"Content-Type: text/plain; charset=klingon\\n"\n', "the encoding 'klingon'"),
        ("html", b"<meta charset=utf-7>+2AA-", "a.html: the encoding 'utf-7' that it names is not known"),
        ("html", b"<meta charset=punycode><p>+2AA-", "a.html: the encoding 'punycode' that it names is not known"),
        ("po", b'"Content-Type: text/plain; charset=utf-8-sig\\n"\n', "a.po: some bytes would change in its encoding"),
        ("srt", b"1\n00:00:01 --> 00:00:02\nhi\n", "a.srt, line 2: must be a timing"),
        ("srt", b"hello\n", "a.srt: has no timing"),
        ("tmx", b"<tmx>\n<body></tmx>", "a.tmx, line 2: is not XML (mismatched tag)"),
        ("tmx", b"<tmx><body><tu><tuv lang='fr'><seg>x</seg></tuv></tu></body></tmx>", "language en; there are fr"),
        ("tmx", b'<!DOCTYPE t [\n<!ENTITY a "b">]><tmx>&a;</tmx>', "a.tmx, line 2: declares the entity 'a'"),
        ("tmx", b'<!DOCTYPE t [<!ENTITY a SYSTEM "/etc/passwd">]><tmx>&a;</tmx>', "declares the entity 'a'"),
        ("tmx", b"<a>" * 2000, "more than 1000 elements in each other"),
        ("xliff", b"<html/>", "the root element is html: must be xliff"),
        ("xliff", b'<xliff><file source-language="fr"/></xliff>', "source-language=fr, but the model has en"),
        ("xliff", b'<xliff version="2.0" srcLang="en" trgLang="it"/>', "trgLang=it, but the model has de"),
        ("jsonl", b'{"en": "a"}\n{"en": 1}\n', "a.jsonl, line 2: field 'en' must be text, got int"),
        ("jsonl", b'{"en": "a"}\n[1]\n', "a.jsonl, line 2: must be a JSON object"),
        ("jsonl", b'{"en": "a"\n', "a.jsonl, line 1: not valid JSON"),
        ("jsonl", b"[" * 100_000, "a.jsonl, line 1: not valid JSON"),
        ("jsonl", b'{"fr": "a"}\n', "a.jsonl, line 1: no field 'en'; there are fr"),
        ("jsonl", b'{"en": "a", "de": ""}\n', "there is a field 'de' already"),
        ("jsonl", b'{"en": "\\ud800"}\n', "half a surrogate pair"),
        ("tsv", b"a\tb\nc\n", "a.tsv, line 2: has 1 columns, but the first has 2"),
        ("tsv", b"a\n", "a.tsv, line 1: has 1 columns, but --field=1 needs 2"),
        ("csv", b'en,x\na,b\n"c,d\n', "a.csv, line 3: not a CSV record"),
        ("csv", b"en,x\na\n", "a.csv, line 2: has 1 columns, but the first has 2"),
        ("csv", b"x,y\na,b\n", "a.csv, line 1: no field 'en'; there are x, y"),
        ("docx", b"PK\x03\x04 no zip", "a.docx: is no Word document"),
        ("docx", docx("<w:document>"), "a.docx, word/document.xml, line 1: is not XML"),
    ],
)
def test_broken_files_are_named_in_one_line(format: str, data: bytes, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        translated(format, data, same)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_damaged_documents_end_in_output_or_in_a_named_error(format: str, data: st.DataObject) -> None:
    content = bytearray(SAMPLES[format])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content)))
        match data.draw(st.sampled_from(["cut", "flip", "put", "drop"])):
            case "cut":
                del content[place:]
            case "flip" if place < len(content):
                content[place] = data.draw(st.integers(0, 255))
            case "put":
                marks = [b"<", b">", b"&", b'"', b"\n", b"\r", b"\xff", b"<b>", b"{", b"-->", b"\xe2\x80\xa8"]
                content[place:place] = data.draw(st.sampled_from(marks))
            case _:
                del content[place : place + data.draw(st.integers(0, 40))]
    with warnings.catch_warnings(action="ignore"):
        try:
            translated(format, bytes(content), upper)
        except ValueError as error:
            assert f"a.{format}" in str(error) and len(str(error)) < 600


def test_a_bomb_is_not_unpacked() -> None:
    file = io.BytesIO(docx())
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("word/media/B.png", "w") as member:
            for _ in range(70):
                member.write(bytes(1 << 20))
    with pytest.raises(ValueError, match=r"a.docx, word/media/B.png: unpacks to more than 64 MiB"):
        translated("docx", file.getvalue(), same)


@pytest.mark.parametrize(
    ("format", "data"),
    [
        ("html", b"<a " * 60_000),
        ("html", b"<p>tea. " * 4_000),
        ("html", b"<!--" * 50_000),
        ("html", b"a<b" * 60_000),
        ("html", b"<!-- >" * 50_000),
        ("html", b"<a x='" * 900 + b"tea" * 5_000),
        ("html", b"<a x='>" * 5_000),
        ("md", b"[" * 4_000),
        ("md", b"*a " * 4_000),
        ("po", b'msgid "' + b"\\" * 200_000),
        ("srt", b"1\n00:00:01,000 --> 00:00:02,000\n" + b"tea " * 50_000),
        ("csv", b"en\n" + b'"a' * 50_000),
        ("tmx", b'<tmx><tu><tuv lang="en"><seg>' + b"<ph/>a" * 4_000 + b"</seg></tuv></tu></tmx>"),
        ("tmx", b'<tmx><tu><tuv lang="en"><seg>tea' + b" " * 200_000 + b"</seg></tuv></tu></tmx>"),
        ("md", b"`` a ` " * 5_000),
        ("md", b"[a](b(" * 5_000),
        ("po", b'msgid "tea ' + b" ".join(b"10.%d.%d.1" % divmod(n, 200) for n in range(40_000)) + b'"\nmsgstr ""\n'),
        ("srt", b"1\n00:00:01,000 --> 00:00:02,000\n" + b"tea" * 100_000),
    ],
)
def test_no_document_takes_more_than_linear_time(format: str, data: bytes) -> None:
    start = time.process_time()
    try:
        translated(format, data, upper)
    except ValueError as error:
        assert f"a.{format}" in str(error)
    assert time.process_time() - start < 8


@pytest.mark.parametrize("format", ["jsonl", "tsv", "csv", "text"])
def test_rows_stream(format: str) -> None:
    """The first translations are there when a file of any size has been read for a little only."""

    class Endless(io.RawIOBase):
        lines = 0

        def readline(self, size: int = -1) -> bytes:
            self.lines += 1
            return b'{"en": "good tea."}\n' if format == "jsonl" else b"en\n" if format == "csv" else b"x\tgood tea.\n"

    file = Endless()
    texts = TextTranslator("en", "de", upper)
    fields = Fields("1" if format == "tsv" else "0" if format == "csv" else "en", "de")
    assert next(translate_document(format, file, "a", texts, fields))
    assert file.lines < 3000


def test_formats_go_by_extension() -> None:
    assert document_format(Path("A.PO"), None) == "po" and document_format(Path("a.xlf"), None) == "xliff"
    assert {document_format(path, None) for path in (None, Path("a.txt"), Path("a"))} == {"text"}
    assert document_format(Path("a.po"), "text") == "text" and document_format(None, "srt") == "srt"
    assert document_format(Path("a.txt.gz"), None) == "text"
    with pytest.raises(ValueError, match="only text is read from .gz"):
        document_format(Path("a.po.gz"), None)
    with pytest.raises(ValueError, match="--format=pdf: must be one of text, jsonl"):
        document_format(None, "pdf")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.documents.formats.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"the package sentencex is missing: pip install 'mt\[documents\]'"):
        translated("po", SAMPLES["po"], same)
