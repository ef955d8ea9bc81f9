import time

import polib
import pytest

from mt.documents.po import entries
from tests.documents.samples import PO, same, translated, upper


def catalogue(data: bytes) -> polib.POFile:
    return polib.pofile(data.decode())


def test_empty_entries_are_filled_and_marked_and_no_others() -> None:
    before, after = catalogue(PO), catalogue(translated("po", PO, upper))
    assert before.metadata == after.metadata and before.header == after.header and len(before) == len(after)
    changed = []
    for old, new in zip(before, after, strict=True):
        assert [old.msgid, old.msgctxt, old.msgid_plural, old.comment, old.occurrences, old.obsolete] == [
            new.msgid, new.msgctxt, new.msgid_plural, new.comment, new.occurrences, new.obsolete
        ]  # fmt: skip
        if (old.msgstr, old.msgstr_plural) == (new.msgstr, new.msgstr_plural):
            assert old.flags == new.flags
        else:
            assert set(new.flags) == {*old.flags, "fuzzy"} and old.previous_msgid == new.previous_msgid
            changed.append(new)
    assert [entry.msgid for entry in changed] == ["open", "%d file", 'two\nlines "quoted".\n']
    assert [entry.msgstr for entry in changed] == ["OPEN", "", 'TWO\nLINES "QUOTED".\n']
    assert changed[1].msgstr_plural == {0: "%d FILE", 1: "%d FILES OF {name}"}


def test_a_second_time_changes_nothing() -> None:
    once = translated("po", PO, upper)
    assert translated("po", once, same) == once


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_every_other_line_stays(line_end: bytes) -> None:
    data = PO.replace(b"\n", line_end)
    lines = translated("po", data, upper).split(line_end)
    for line in data.split(line_end):
        assert line in lines or line in (b"#, c-format",) or line.endswith(b' ""')


def test_one_plural_form_gets_the_plural() -> None:
    data = b'msgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n'
    assert b'msgstr[0] "%d FILES"' in translated("po", data, upper)


def test_an_encoding_that_lacks_a_character_is_named() -> None:
    data = b'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\nmsgid "caf\xe9"\nmsgstr ""\n'
    assert b'msgstr "CAF\xc9"' in translated("po", data, upper)
    with pytest.raises(ValueError, match="a.po: its encoding ISO-8859-1 has no '茶'"):
        translated("po", data, lambda sentences: ["茶" for _ in sentences])


def test_odd_line_separators_are_characters() -> None:
    data = 'msgid "tea\u2028cup"\nmsgstr ""\n'.encode()
    assert 'msgstr "TEA\u2028CUP"'.encode() in translated("po", data, upper)


def test_only_the_header_names_the_encoding() -> None:
    data = b'msgid "set charset=klingon"\nmsgstr ""\n'
    assert b'msgstr "SET CHARSET=KLINGON"' in translated("po", data, upper)


def test_many_lines_of_a_message_take_linear_time() -> None:
    lines = ['msgid ""', *['"they read good books "'] * 100_000, 'msgstr ""']
    start = time.process_time()
    (entry,) = entries(lines, "a.po")
    assert len(entry.source_of("msgstr")) == 2_100_000
    assert time.process_time() - start < 5  # quadratic time would be far more
