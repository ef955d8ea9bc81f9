import gzip
import lzma
from pathlib import Path

import pyarrow as pa
import pytest

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, corpus_fingerprint, read_corpus
from mt.data.files import files_of, read_lines, suffixes

NAME = "data.train.main"
COMPRESS = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: pa.compress(content, codec="zstd", asbytes=True),
}


def error_of(call, *arguments) -> str:
    with pytest.raises(ValueError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def pairs(path: Path) -> list[tuple[str, str]]:
    config = CorpusConfig(path=str(path))
    check_corpus(config, DataConfig(), NAME)
    return list(read_corpus(config, DataConfig(), NAME))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_are_read_to_the_end(tmp_path, suffix: str) -> None:
    path, one = tmp_path / f"t.tsv{suffix}", COMPRESS[suffix]("red\u2028tea\t茶\n".encode() * 1000)
    for parts in (1, 2):  # two members, or frames, one after the other
        path.write_bytes(one * parts)
        assert pairs(path) == [("red\u2028tea", "茶")] * 1000 * parts


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("damage", ["cut off", "one byte", "not compressed"])
def test_damaged_compressed_files_are_named(tmp_path, suffix: str, damage: str) -> None:
    whole = COMPRESS[suffix]("".join(f"tea {i * i}\t茶 {i}\n" for i in range(3000)).encode())
    place = 1 if suffix == ".zst" else len(whole) // 2  # pyarrow writes no checksum into the frame
    damaged = {
        "cut off": whole[:-9],
        "one byte": whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :],
        "not compressed": "tea\t茶\n".encode(),
    }
    path = tmp_path / f"t.tsv{suffix}"
    path.write_bytes(damaged[damage])
    for call in (pairs, lambda path: list(read_lines(path))):
        assert f"t.tsv{suffix}" in error_of(call, path)


def test_xz_is_checked_behind_its_first_stream_and_padding_is_none(tmp_path) -> None:
    first, second = (lzma.compress(f"{name}\tx\n".encode() * 500) for name in ("tea", "rice"))
    path = tmp_path / "t.tsv.xz"
    for padding in (b"", bytes(4), bytes(400_000)):
        path.write_bytes(first + padding + second + padding)
        assert pairs(path) == [("tea", "x")] * 500 + [("rice", "x")] * 500
    half = len(second) // 2
    damaged = second[:half] + b"XXXX" + second[half + 4 :]
    for rest in (damaged, second[:-9], b"tea\tx\n", bytes(3), bytes(2) + second):
        path.write_bytes(first + rest)
        assert "t.tsv.xz: " in error_of(pairs, path)


def test_lines_that_end_in_cr_alone_are_refused(tmp_path) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(b"tea\tTee\rrice\tReis\rbook\tBuch")
    assert "t.tsv: is one line, with carriage returns (CR) in it" in error_of(pairs, path)
    path.write_bytes(b"te\ra\tT\ree\r\ntea\tTee\n")  # a character among others where lines have ends of their own
    assert pairs(path) == [("te\ra", "T\ree"), ("tea", "Tee")]


def test_a_folder_is_read_in_order_of_its_paths(tmp_path) -> None:
    for name in ("b.tsv", "part-10.tsv", "part-2.tsv", "deep/a.tsv.gz", ".hidden.tsv", ".git/x.tsv", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        content = f"{name}\tx\n".encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert [source for source, _ in pairs(tmp_path)] == ["b.tsv", "deep/a.tsv.gz", "part-10.tsv", "part-2.tsv"]
    assert [source for source, _ in pairs(tmp_path / "part-*.tsv")] == ["part-10.tsv", "part-2.tsv"]
    assert [source for source, _ in pairs(tmp_path / "**" / "*.gz")] == ["deep/a.tsv.gz"]
    (tmp_path / "[odd]*.tsv").write_text("odd\tx\n", encoding="utf-8")
    assert pairs(tmp_path / "[odd]*.tsv") == [("odd", "x")]  # a file of that name is no pattern


def test_linked_folders_are_read_and_no_file_twice(tmp_path) -> None:
    for name in ("top/a.tsv", "top/deep/c.tsv", "other/b.tsv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\tx\n")
    (tmp_path / "top" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "other" / "back").symlink_to(tmp_path / "top")
    found = [source for source, _ in pairs(tmp_path / "top")]
    assert sorted(found) == ["other/b.tsv", "top/a.tsv", "top/deep/c.tsv"]
    (tmp_path / "other" / "back").unlink()
    for pattern in ("top/**/*.tsv", "top/**/**/*.tsv"):
        assert sorted(source for source, _ in pairs(tmp_path / pattern)) == sorted(found)


def test_a_folder_or_a_pattern_without_files(tmp_path) -> None:
    (tmp_path / "README.md").write_text("x")
    assert f"{NAME}.path={tmp_path}: the folder holds no file of a known format" in error_of(pairs, tmp_path)
    assert "no file fits the pattern" in error_of(pairs, tmp_path / "*.tsv")
    assert "README.md: unknown format .md" in error_of(pairs, tmp_path / "*.md")


def test_each_file_of_a_folder_is_checked_before_any_work(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"en": "tea", "zh": "x"}\n')
    (tmp_path / "b.jsonl").write_text('{"en": "tea", "de": "Tee"}\n')
    config = CorpusConfig(path=str(tmp_path))
    assert "b.jsonl, line 1: no field 'zh'" in error_of(check_corpus, config, DataConfig(), NAME)
    (tmp_path / "b.jsonl").write_text("")
    assert f"b.jsonl{''}: the file is empty" in error_of(check_corpus, config, DataConfig(), NAME)


def test_the_fingerprint_follows_the_content_of_all_files(tmp_path) -> None:
    config = CorpusConfig(path=str(tmp_path))

    def fingerprint() -> str:
        return corpus_fingerprint(config, DataConfig(), NAME)

    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_text(f"{name}\tx\n")
    before = fingerprint()
    (tmp_path / "README").write_text("not a corpus")
    assert fingerprint() == before
    (tmp_path / "b.tsv").write_text("b.tsv\ty\n")
    assert len({before, fingerprint()}) == 2
    (tmp_path / "c.tsv").write_text("c\tx\n")
    assert fingerprint() != before


def test_suffixes() -> None:
    assert suffixes("a/T.TSV.GZ") == (".tsv", ".gz") and suffixes("x.de-en.de") == (".de", "")
    assert suffixes("x.zst") == ("", ".zst") and suffixes("x") == ("", "")
    assert files_of("a\0b", "s", (".tsv",)) == [Path("a\0b")]  # whose reading tells what is wrong
