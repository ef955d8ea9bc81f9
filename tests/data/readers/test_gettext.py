from collections import Counter
from pathlib import Path

import pytest

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, read_corpus

NAME = "data.train.main"
HEADER = 'msgid ""\nmsgstr ""\n"Language: zh_CN\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
CATALOGUE = (
    "# charset=ascii is what a comment says\n"
    + HEADER
    + """msgid "Open"
msgstr "打开"

#: menu.c:1
#, c-format, fuzzy
#| msgid "Close file"
msgid "Close window"
msgstr "关闭文件"

msgid "Untranslated"
msgstr ""

msgctxt "menu"
msgid "File"
msgstr "文件"

msgctxt "tool"
msgid "File"
msgstr "锉刀"

msgid "%d cup"
msgid_plural "%d cups"
msgstr[0] "%d 杯"

msgid ""
"Two\\n"
"lines\\n"
msgstr "两\\n行\\n"

#~ msgid "Old"
#~ msgstr "旧"
"""
)
PAIRS = [
    ("Open", "打开"), ("File", "文件"), ("File", "锉刀"), ("%d cup", "%d 杯"), ("%d cups", "%d 杯"),
    ("Two lines", "两 行"),
]  # fmt: skip


def pairs(path: Path, data: DataConfig | None = None, counts: Counter | None = None, **settings):
    config, data = CorpusConfig(path=str(path), **settings), data or DataConfig()
    check_corpus(config, data, NAME)
    return list(read_corpus(config, data, NAME, counts))


def po(folder: Path, content: str | bytes = CATALOGUE) -> Path:
    path = folder / "t.po"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def mo(folder: Path, content: str = CATALOGUE) -> Path:
    polib = pytest.importorskip("polib")
    path = folder / "t.mo"
    polib.pofile(str(po(folder, content))).save_as_mofile(str(path))
    return path


def error(path: Path, data: DataConfig | None = None, **settings) -> str:
    with pytest.raises(ValueError) as caught:
        pairs(path, data, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_translated_messages_alone(tmp_path) -> None:
    counts: Counter[str] = Counter()
    assert pairs(po(tmp_path), counts=counts) == PAIRS
    assert counts == {"fuzzy entry": 1, "entry without translation": 1}
    fuzzy = pairs(po(tmp_path), include_fuzzy=True)
    assert set(fuzzy) - set(PAIRS) == {("Close window", "关闭文件")} and len(fuzzy) == 7


def test_a_compiled_catalogue_has_the_same_pairs(tmp_path) -> None:
    assert sorted(pairs(mo(tmp_path))) == sorted(PAIRS)
    big_endian = mo(tmp_path).read_bytes()
    words = len(big_endian[:28]) // 4
    swapped = b"".join(big_endian[4 * i : 4 * i + 4][::-1] for i in range(words))
    count = int.from_bytes(big_endian[8:12], "little")
    end = 28 + 16 * count
    swapped += b"".join(big_endian[i : i + 4][::-1] for i in range(28, end, 4)) + big_endian[end:]
    (tmp_path / "big.mo").write_bytes(swapped)
    assert sorted(pairs(tmp_path / "big.mo")) == sorted(PAIRS)


@pytest.mark.parametrize(
    ("forms", "found"),
    [
        (["%d чашка"], [("%d cup", "%d чашка"), ("%d cups", "%d чашка")]),
        (["eine Tasse", "%d Tassen"], [("%d cup", "eine Tasse"), ("%d cups", "%d Tassen")]),
        (["%d чашка", "%d чашки", "%d чашек"], [("%d cups", "%d чашек")]),
    ],
)
def test_plural_forms(tmp_path, forms: list[str], found: list[tuple[str, str]]) -> None:
    statements = "".join(f'msgstr[{i}] "{form}"\n' for i, form in enumerate(forms))
    content = HEADER + f'msgid "%d cup"\nmsgid_plural "%d cups"\n{statements}'
    assert pairs(po(tmp_path, content)) == found
    assert pairs(mo(tmp_path, content)) == found


def test_the_header_tells_which_side_the_translations_are(tmp_path) -> None:
    swapped = [(target, source) for source, target in PAIRS]
    assert pairs(po(tmp_path), DataConfig("zh", "en")) == swapped
    assert "names the language zh_CN, which is neither en nor fr" in error(po(tmp_path), DataConfig("en", "fr"))
    assert pairs(po(tmp_path), DataConfig("en", "fr"), source_field="msgid") == PAIRS
    assert pairs(po(tmp_path), DataConfig("en", "fr"), source_field="msgstr", target_field="msgid") == swapped
    assert "must be msgid and msgstr" in error(po(tmp_path), source_field="en")
    unnamed = CATALOGUE.replace("Language: zh_CN", "X: y")
    assert pairs(po(tmp_path, unnamed), DataConfig("de", "fr")) == PAIRS


def test_encodings(tmp_path) -> None:
    assert pairs(po(tmp_path, CATALOGUE.replace("UTF-8", "GBK").encode("gbk"))) == PAIRS
    assert pairs(po(tmp_path, CATALOGUE.replace("UTF-8", "CHARSET"))) == PAIRS
    assert pairs(po(tmp_path, CATALOGUE.replace("\n", "\r\n"))) == PAIRS
    for encoding in ("klingon", "hex", "utf-16", "undefined", "punycode"):
        message = error(po(tmp_path, CATALOGUE.replace("UTF-8", encoding)))
        assert f"t.po: names the encoding '{encoding}', which cannot be read" in message
    assert "t.po, line 8: byte 9 (0xb4) is not valid UTF-8" in error(po(tmp_path, CATALOGUE.encode("gbk")))


def test_escaped_bytes_are_those_of_a_compiled_catalogue(tmp_path) -> None:
    escaped = 'msgid "x\\303\\274"\nmsgstr "Gr\\303\\274\\xc3\\x9fe \\x41 C:\\\\303"\n'
    assert pairs(po(tmp_path, HEADER + escaped)) == [("xü", "Grüße A C:\\303")]
    assert "line 6: its escaped bytes are not valid UTF-8" in error(po(tmp_path, HEADER + escaped.replace("274", "z")))


@pytest.mark.parametrize(
    ("end", "part"),
    [
        ('msgid "a"\n', "has no msgstr"),
        ('msgid "a"\nmsgstr "b\n', "line 37: must be a comment or a statement"),
        ('msgstr "b"\n', "line 36: a second msgstr in one entry"),
        ("tea\n", "line 36: must be"),
        ('msgid "a\0"\n', "line 36: has a NUL byte"),
    ],
)
def test_what_is_no_catalogue_is_named(tmp_path, end: str, part: str) -> None:
    content = CATALOGUE.split("#~")[0] + end
    assert part in (message := error(po(tmp_path, content))) and "t.po, line" in message


def test_damaged_compiled_catalogues_are_named(tmp_path) -> None:
    path = mo(tmp_path)
    content = path.read_bytes()
    for damaged, part in (
        (content[:-4], "t.mo, message 6: lies behind the end of the file"),
        (content[:40], "t.mo: is cut off"),
        (content[:20], "t.mo: is no compiled gettext catalogue"),
        (b"msgid" + content, "t.mo: is no compiled"),
        (content[:8] + b"\xff\xff\xff\xff" + content[12:], "t.mo: is cut off"),
        (content.replace("打开".encode(), b"\xff" * 6), "t.mo, message 3: is not valid UTF-8"),
    ):
        path.write_bytes(damaged)
        assert part in error(path)
