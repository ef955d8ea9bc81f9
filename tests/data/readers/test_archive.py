import zipfile
from pathlib import Path

import pytest

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, read_corpus

NAME = "data.train.main"
GERMAN = DataConfig("en", "de")


def archive(folder: Path, members: dict[str, str]) -> Path:
    path = folder / "t.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def pairs(path: Path, data: DataConfig = GERMAN, **fields: str) -> list[tuple[str, str]]:
    config = CorpusConfig(path=str(path), **fields)
    check_corpus(config, data, NAME)
    return list(read_corpus(config, data, NAME))


def error(path: Path, data: DataConfig = GERMAN, **fields: str) -> str:
    with pytest.raises(ValueError) as caught:
        pairs(path, data, **fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_two_texts_named_by_language(tmp_path) -> None:
    moses = {
        "README": "x", "LICENSE": "x", "Books.de-en.xml": "<x/>", "x/Books.de-en.de": "Tee\u2028\nReis\n",
        "x/Books.de-en.en": "tea\nrice", "Books.de-en.ids": "1",
    }  # fmt: skip
    path = archive(tmp_path, moses)
    assert pairs(path) == [("tea", "Tee\u2028"), ("rice", "Reis")]
    assert pairs(path, DataConfig("de", "en")) == [("Tee\u2028", "tea"), ("Reis", "rice")]
    assert pairs(archive(tmp_path, {"a.en_GB": "tea\n", "a.pt_BR": "chá\n"}), DataConfig("en", "pt")) == [
        ("tea", "chá")
    ]
    assert "neither two texts that end in .en and .fr" in error(path, DataConfig("en", "fr"))
    uneven = archive(tmp_path, {"a.en": "a\nb\n", "a.de": "a\n"})
    assert "t.zip, a.de ends after line 1, the other side goes on" in error(uneven)
    two = archive(tmp_path, {"a.en": "a\n", "b.en": "b\n", "a.de": "a\n"})
    assert "more than one member ends in .en: a.en, b.en" in error(two)


def test_files_of_known_formats_by_name(tmp_path) -> None:
    members = {"b.tsv": "rice\tReis\n", "a.csv": "en,de\ntea,Tee\n", "x.txt": "x", "__MACOSX/._a": "x", "_a.tsv": "x"}
    assert pairs(archive(tmp_path, members)) == [("tea", "Tee"), ("rice", "Reis")]
    bad = archive(tmp_path, {"b.tsv": "a\tb\nc\n"})
    assert "t.zip, b.tsv, line 2: has 1 columns" in error(bad)


def test_sentences_of_manythings(tmp_path) -> None:
    members = {"deu.txt": "Hi.\tHallo!\tCC-BY\nRun!\tLauf!\tCC-BY\n", "_about.txt": "x"}
    path = archive(tmp_path, members)
    assert pairs(path) == [("Hi.", "Hallo!"), ("Run!", "Lauf!")]
    assert pairs(path, DataConfig("de", "en")) == [("Hallo!", "Hi."), ("Lauf!", "Run!")]
    assert pairs(path, DataConfig("de", "fr"), source_field="1", target_field="0")[0] == ("Hallo!", "Hi.")
    assert "is taken for English, but neither language is" in error(path, DataConfig("de", "fr"))


def test_what_is_no_archive_of_sentences(tmp_path) -> None:
    path = archive(tmp_path, {"a.doc": "x", "b\n.doc": "x"})
    assert "t.zip: holds neither two texts" in (message := error(path)) and "there is a.doc, b .doc" in message
    content = archive(tmp_path, {"b.tsv": "tea\tTee\n" * 1000}).read_bytes()
    for damaged in (content[:-30], b"tea", content[:60] + bytes(10) + content[70:]):
        path.write_bytes(damaged)
        assert "t.zip" in error(path)
    flags = bytearray(content)  # marked as encrypted, in both headers
    flags[6] |= 1
    flags[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(flags))
    assert "t.zip, b.tsv: cannot be unpacked (File 'b.tsv' is encrypted" in error(path)


def test_the_sentences_of_tatoeba(tmp_path) -> None:
    path = Path(__file__).parents[4] / "shared" / "data" / "tatoeba-en-de" / "deu-eng.zip"
    if not path.exists():
        pytest.skip("the archive is not there")
    found = pairs(path)
    assert len(found) == 169_813 and found[0] == ("Hi.", "Hallo!")


def test_a_member_without_a_name_is_none_of_the_texts(tmp_path) -> None:
    path = archive(tmp_path, {"a.de-en.en": "tea\n", "a.de-en.de": "Tee\n", "x": "nothing"})
    path.write_bytes(path.read_bytes().replace(b"x" + b"PK\5\6", b"\0" + b"PK\5\6"))  # in the list of members
    assert zipfile.ZipFile(path).namelist()[-1] == ""
    assert pairs(path) == [("tea", "Tee")]


def test_no_member_with_pairs_is_passed_over(tmp_path) -> None:
    for other in ("b.tsv.gz", "inner.zip", "2.parquet", "3.mo", "all.tar"):
        message = error(archive(tmp_path, {"a.tsv": "tea\tTee\n", other: "x"}))
        assert f"t.zip, {other}: is packed itself, or of a format that is not read in archives" in message
    assert pairs(archive(tmp_path, {"a.tsv": "tea\tTee\n", "README.gz": "x", "notes.pdf": "x"})) == [("tea", "Tee")]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(tmp_path) -> None:
    path = archive(tmp_path, {"a.tsv": "tea\tTee\n"})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("a.tsv", "rice\tReis\n")
    assert "t.zip: holds more than one member a.tsv: unpack it" in error(path)
