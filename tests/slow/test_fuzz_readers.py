"""Random bytes and damaged files of every format end in pairs or in a ValueError of one line with the file's name."""

import gzip
import io
import lzma
import random
import time
import zipfile
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet
import pytest

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, corpus_fingerprint, read_corpus

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

INPUTS = 10_000  # of each format
LONGEST_SECONDS = 5.0
NAME = "data.train.main"
PAIRS = [("red tea", "红茶"), ('"rice, &', "米饭\u2028"), ("salt\\", "盐"), ("a b c", "d e")]


def tmx() -> bytes:
    units = "".join(
        f'<tu><note>n</note><tuv xml:lang="en-GB"><seg>{source}<ph x="1">c</ph><hi>x</hi></seg></tuv>'
        f'<tuv xml:lang="zh"><seg><![CDATA[{target}]]></seg></tuv></tu>'
        for source, target in (("red tea", "红茶"), ("rice", "米饭"), ("&lt;salt&#233;", "盐"))
    )
    head = '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><!-- c -->'
    return f'{head}<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'.encode()


def xliff(new: bool) -> bytes:
    if new:
        units = "".join(
            f'<unit id="{i}"><segment state="final"><source>{i} <pc id="1">tea</pc></source><target>茶</target>'
            "</segment><ignorable><source> </source></ignorable></unit>"
            for i in range(3)
        )
        head = (
            '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="zh"><file id="1">'
        )
        return f"{head}{units}</file></xliff>".encode()
    units = "".join(
        f'<group translate="yes"><trans-unit id="{i}"><source>{i} <g id="1">tea</g><x id="2"/></source>'
        '<target state="translated">茶</target><alt-trans><target>n</target></alt-trans></trans-unit></group>'
        for i in range(3)
    )
    head = '<xliff version="1.2"><file source-language="en" target-language="zh-CN"><body>'
    return f"{head}{units}</body></file></xliff>".encode()


PO = """# c
msgid ""
msgstr ""
"Language: zh\\n"
"Content-Type: text/plain; charset=UTF-8\\n"

#, fuzzy
msgid "rice"
msgstr "米饭"

msgctxt "menu"
msgid "red\\ttea\\n"
"more"
msgstr "红茶"

msgid "%d cup"
msgid_plural "%d cups"
msgstr[0] "%d 杯"
msgstr[1] "%d 杯"

#~ msgid "old"
#~ msgstr "旧"
""".encode()


def mo() -> bytes:
    polib = pytest.importorskip("polib")
    catalogue = polib.MOFile(encoding="utf-8")
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8", "Language": "zh"}
    catalogue.extend(polib.MOEntry(msgid=source, msgstr=target) for source, target in PAIRS)
    catalogue.append(polib.MOEntry(msgid="cup", msgid_plural="cups", msgstr_plural={0: "杯", 1: "杯"}, msgctxt="x"))
    return catalogue.to_binary()


def arrow(kind: str, compression: str | None = None) -> bytes:
    table = pa.table({"id": [1, 2, 3, 4], "en": [s for s, _ in PAIRS], "zh": [t for _, t in PAIRS]})
    if compression == "dictionary":
        table = table.set_column(1, "en", table["en"].dictionary_encode())
        compression = None
    sink = io.BytesIO()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, sink, row_group_size=2)
    else:
        new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return sink.getvalue()


TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()
CSV = 'en,zh\nred tea,红茶\n"""rice, &","米\n饭"\nsalt,盐\n'.encode()
JSONL = '{"en": "red tea", "zh": "红茶"}\n{"translation": {"en": "rice", "zh": "米饭"}}\n'.encode()


def plain(content: bytes) -> bytes:
    return content


def zstd(content: bytes) -> bytes:
    return pa.compress(content, codec="zstd", asbytes=True)


# Suffix, a valid file's content, and how it is packed: what is inside is damaged too, and packed again.
FORMATS: dict[str, tuple[str, Callable[[], bytes], Callable[[bytes], bytes]]] = {
    "csv": (".csv", lambda: CSV, plain),
    "tmx": (".tmx", tmx, plain),
    "tmx in utf-16": (".tmx", lambda: tmx().decode().replace("utf-8", "utf-16").encode("utf-16"), plain),
    "xliff 1.2": (".xlf", lambda: xliff(False), plain),
    "xliff 2": (".xliff", lambda: xliff(True), plain),
    "po": (".po", lambda: PO, plain),
    "mo": (".mo", mo, plain),
    "parquet": (".parquet", lambda: arrow("parquet"), plain),
    "arrow file": (".arrow", lambda: arrow("file"), plain),
    "arrow stream": (".arrow", lambda: arrow("stream", "dictionary"), plain),
    "feather": (".feather", lambda: arrow("file", "lz4"), plain),
    "zip of two texts": (".zip", lambda: TSV, lambda content: zipped({"a.en": content, "a.zh": b"a\nb\nc\nd\n"})),
    "zip of jsonl": (".zip", lambda: JSONL, lambda content: zipped({"a.jsonl": content, "README": b"x"})),
    "zip of tmx": (".zip", tmx, lambda content: zipped({"a.tmx": content})),
    "tsv.gz": (".tsv.gz", lambda: TSV, gzip.compress),
    "tsv.xz": (".tsv.xz", lambda: TSV, lzma.compress),
    "tsv.zst": (".tsv.zst", lambda: TSV, zstd),
    "tmx.gz": (".tmx.gz", tmx, gzip.compress),
}
ODD = [
    b"\n", b"\r\n", b"\r", b"\t", b"\0", b'"', b"'", b",", b"<", b">", b"</", b"/>", b"&", b";", b"&x;", b"&#0;",
    b"]]>", b"<![CDATA[", b"<!--", b"-->", b"<?x?>", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f",
    b"\xef\xbb\xbf", b"{", b"}", b"[", b"null", b"\\ud800", b"\\", b'msgid "', b'msgstr "', b"msgctxt", b"#~ ",
    b"#, fuzzy\n", b"charset=hex\\n", b'<!DOCTYPE tmx [<!ENTITY a "b">]>', b"xmlns:x='", b"encoding='x'", b"<seg>",
    b"<tuv>", b"<tu>", b"<source>", b"</target>", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\x80",
    "\u2028".encode(), "\x85".encode(), "茶".encode(), b"PK\x05\x06",
]  # fmt: skip


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Returns the content with up to four parts changed, cut out, doubled or put in."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        start = rng.randrange(len(content) + 1)
        end = min(len(content), start + rng.choice([0, 1, 1, 1, 4, 4, 20, 1000]))
        how = rng.randrange(7)
        new = rng.choice(ODD) if how < 2 else rng.randbytes(rng.randint(0, 4)) if how < 4 else content[start:end] * 2
        if how > 4 and end > start:  # a bit
            new = bytes([content[start] ^ (1 << rng.randrange(8))]) + content[start + 1 : end]
        content = content[:start] + new + content[end:]
        if rng.randrange(20) == 0:
            content = content[: rng.randrange(len(content) + 1)]
    return content


def outcome(call: Callable, name: str):
    """Returns the result, or None after a ValueError of one line; any other error is the fault that is looked for."""
    try:
        return call()
    except ValueError as error:
        message = str(error)
        assert message and len(message.splitlines()) == 1 and len(message) < 2000, repr(message)
        assert name in message, message
        return None


@pytest.mark.parametrize("format", FORMATS)
def test_pairs_or_a_named_error(tmp_path, format: str) -> None:
    suffix, make, pack = FORMATS[format]
    valid, rng, data = make(), random.Random(format), DataConfig()
    path = tmp_path / f"corpus{suffix}"
    config = CorpusConfig(path=str(path))
    path.write_bytes(pack(valid))
    check_corpus(config, data, NAME)
    whole = list(read_corpus(config, data, NAME))
    assert whole
    read = 0
    for number in range(INPUTS):
        kind = number % 8
        if kind == 0:
            content = rng.randbytes(rng.randint(0, 80))
        elif kind == 1:
            content = b"".join(rng.choices(ODD, k=rng.randint(1, 12)))
        elif kind < 5 and pack is not plain:
            content = pack(damaged(rng, valid))
        else:
            content = damaged(rng, pack(valid))
        path.write_bytes(content)
        start = time.monotonic()
        outcome(lambda: check_corpus(config, data, NAME), path.name)
        fingerprint = outcome(lambda: corpus_fingerprint(config, data, NAME), path.name)
        assert fingerprint is not None and len(fingerprint) == 64
        pairs = outcome(lambda: list(read_corpus(config, data, NAME)), path.name)
        for pair in pairs or ():
            assert "\n" not in pair[0] + pair[1]
            (pair[0] + pair[1]).encode()
        read += pairs is not None
        assert time.monotonic() - start < LONGEST_SECONDS, content
    print(f"{format}: {read} of {INPUTS} inputs gave pairs")
    assert 0 < read < INPUTS
