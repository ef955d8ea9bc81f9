"""The same pairs through every format: the same strings, and the same fingerprint once they are encoded."""

import csv
import gzip
import json
import lzma
import random
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from mt.config import CleaningConfig, CorpusConfig, DataConfig, TokenizerConfig
from mt.data.corpus import check_corpus, read_corpus
from mt.data.encoded import encode_corpus
from mt.tokenizer import train_tokenizers

Pairs = list[tuple[str, str]]
HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
WORDS = [
    "tea", "Reis", "\u2028", "\u2029", "\x85", "a\rb", '"', '""', "'", ",", ";", "<b>", "&amp;", "&", "]]>", "\\",
    "\\n", "%s", "|", "{", "é", "e\u0301", "😀", "\u200b", "  ", "\u3000", "\ufeff",
]  # fmt: skip


def some_pairs(count: int) -> Pairs:
    """Returns different pairs in order of their sources, as in a compiled catalogue. No text has tab, LF or \\x0b."""
    rng = random.Random(1)
    pairs = {}
    while len(pairs) < count:
        source, target = (" ".join(rng.choices(WORDS, k=rng.randint(1, 8))) for _ in range(2))
        pairs[f"{rng.choice(WORDS)} {source} {len(pairs)}"] = f"{target} 茶"
    return sorted(pairs.items(), key=lambda pair: pair[0].encode())


def xml_text(text: str) -> str:
    return escape(text).replace("\r", "&#13;")


def po_text(text: str) -> str:
    for character, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\r", "\\r")):
        text = text.replace(character, escaped)
    return f'"{text}"'


def write_all(folder: Path, pairs: Pairs) -> dict[str, CorpusConfig]:
    """Returns corpora by format, each of which holds these pairs."""
    sides = tuple("".join(pair[side] + "\n" for pair in pairs).encode() for side in (0, 1))
    tsv = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    (folder / "t.en").write_bytes(sides[0])
    (folder / "t.zh").write_bytes(sides[1])
    (folder / "t.tsv").write_bytes(tsv)
    (folder / "gz.tsv.gz").write_bytes(gzip.compress(tsv))
    (folder / "xz.tsv.xz").write_bytes(lzma.compress(tsv))
    (folder / "zst.tsv.zst").write_bytes(pa.compress(tsv, codec="zstd", asbytes=True))
    with open(folder / "t.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("zh", "en"), *((target, source) for source, target in pairs)])
    rows = [{"en": source, "zh": target} for source, target in pairs]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    table = pa.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, folder / "t.parquet", row_group_size=1000)
    pyarrow.feather.write_feather(table, folder / "t.feather")
    with pa.ipc.new_stream(folder / "t.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    with zipfile.ZipFile(folder / "moses.zip", "w") as archive:
        for name, content in (("README", b"x"), ("t.en-zh.en", sides[0]), ("t.en-zh.zh", sides[1])):
            archive.writestr(name, content)
    with zipfile.ZipFile(folder / "tsv.zip", "w") as archive:
        archive.writestr("t.tsv", tsv)
    (folder / "parts").mkdir()
    half = len(pairs) // 2
    for name, part in (("1.tsv", pairs[:half]), ("2.tsv", pairs[half:])):
        (folder / "parts" / name).write_bytes("".join(f"{s}\t{t}\n" for s, t in part).encode())
    write_documents(folder, pairs)
    paths = ["t.tsv", "gz.tsv.gz", "xz.tsv.xz", "zst.tsv.zst", "t.csv", "t.jsonl", "t.parquet", "t.feather", "t.arrow"]
    paths += ["moses.zip", "tsv.zip", "t.tmx", "t.xlf", "new.xliff", "t.po", "t.mo", "parts", "parts/*.tsv"]
    corpora = {path: CorpusConfig(path=str(folder / path)) for path in paths}
    corpora["text"] = CorpusConfig(source=str(folder / "t.en"), target=str(folder / "t.zh"))
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(rows).save_to_disk(folder / "saved")
    (folder / "hub").mkdir()
    pyarrow.parquet.write_table(table, folder / "hub" / "train.parquet")
    corpora["saved"] = CorpusConfig(dataset=str(folder / "saved"))
    corpora["hub"] = CorpusConfig(dataset=str(folder / "hub"))
    return corpora | {"streamed": CorpusConfig(dataset=str(folder / "hub"), streaming=True)}


def write_documents(folder: Path, pairs: Pairs) -> None:
    units = [[xml_text(text) for text in pair] for pair in pairs]
    memory = "".join(
        f'<tu tuid={quoteattr(str(i))}><tuv xml:lang="zh-CN"><seg>{target}</seg></tuv><tuv xml:lang="EN"><seg>{source}'
        "</seg></tuv></tu>\n"
        for i, (source, target) in enumerate(units)
    )
    (folder / "t.tmx").write_text(f'<tmx version="1.4"><body>{memory}</body></tmx>', encoding="utf-8")
    old = "".join(f"<trans-unit><source>{s}</source><target>{t}</target></trans-unit>" for s, t in units)
    head = '<xliff version="1.2"><file source-language="en" target-language="zh"><body>'
    (folder / "t.xlf").write_text(f"{head}{old}</body></file></xliff>", encoding="utf-8")
    new = "".join(f"<unit><segment><source>{s}</source><target>{t}</target></segment></unit>" for s, t in units)
    head = '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="zh"><file id="1">'
    (folder / "new.xliff").write_text(f"{head}{new}</file></xliff>", encoding="utf-8")
    entries = "".join(f"msgid {po_text(source)}\nmsgstr {po_text(target)}\n\n" for source, target in pairs)
    (folder / "t.po").write_bytes((HEADER + entries).encode())
    polib = pytest.importorskip("polib")
    catalogue = polib.MOFile(encoding="utf-8")
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    catalogue.extend(polib.MOEntry(msgid=source, msgstr=target) for source, target in pairs)
    catalogue.save(str(folder / "t.mo"))


@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_format_gives_the_same_fingerprint(tmp_path, monkeypatch, count: int) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    pairs = some_pairs(count)
    corpora = write_all(tmp_path, pairs)
    with pytest.warns(UserWarning) if count < 1000 else monkeypatch.context():  # a small corpus, a small vocabulary
        tokenizers = train_tokenizers(pairs, TokenizerConfig(vocabulary_size=400), seed=1)
    fingerprints = {}
    for name, config in corpora.items():
        data = DataConfig(
            train={"main": config}, cleaning=CleaningConfig(max_length_ratio=0), cache_dir=str(tmp_path / "encoded")
        )
        check_corpus(config, data, name)
        assert list(read_corpus(config, data, name)) == pairs, name
        fingerprints[name] = encode_corpus(data.train, data, tokenizers).fingerprint
    assert len(set(fingerprints.values())) == 1, fingerprints
    folders = [path for path in (tmp_path / "encoded").iterdir() if path.is_dir()]
    assert len(folders) > 15  # the fingerprint is the content's, not that of one cache used by all
