"""A big file in parts: stopped, resumed, shared by processes, and always what one process writes at once."""

import pytest

from mt.translation import parts
from mt.translation.line_output import LineJob, write_lines
from mt.translation.lines import Translation
from mt.translation.parts import Share, write_in_parts

LINES = [f"line {number}" if number % 5 else "" for number in range(23)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART_LINES", 4)


class Capitals:
    """Translates into capitals, with line numbers, and stops after a number of lines."""

    def __init__(self, stop_after: int = 1000) -> None:
        self.stop_after, self.translated = stop_after, []

    def translate(self, translator, texts, first_line):
        if len(self.translated) + len(texts) > self.stop_after:
            raise KeyboardInterrupt
        self.translated += texts
        return [[Translation(f"{number} {text.upper()}", 0.0, [], False, False)]
                for number, text in enumerate(texts, first_line)]  # fmt: skip


def job(lines=LINES):
    return LineJob(iter(lines), 2, True, False, False, False)


def run(output, way, lines=LINES, identity="model a", share=Share()):  # noqa: B008
    write_in_parts(job(lines), output, lambda: None, way, identity, share, lambda: None)


@pytest.fixture
def at_once(tmp_path):
    write_lines(job(), tmp_path / "at_once", lambda: None, Capitals())
    return (tmp_path / "at_once").read_bytes()


def test_parts_make_what_one_process_writes_at_once(tmp_path, at_once):
    run(tmp_path / "out", Capitals())
    assert (tmp_path / "out").read_bytes() == at_once and at_once.count(b"\n") == len(LINES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["at_once", "out"]


@pytest.mark.parametrize("stop_after", [0, 1, 4, 7, 22])
def test_a_stopped_command_goes_on(tmp_path, at_once, stop_after):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", Capitals(stop_after))
    assert not (tmp_path / "out").exists()
    rest = Capitals()
    run(tmp_path / "out", rest)
    assert (tmp_path / "out").read_bytes() == at_once
    assert len(rest.translated) == len(LINES) - stop_after // 4 * 4


@pytest.mark.parametrize("count", [2, 3, 7])
def test_processes_share_the_parts(tmp_path, at_once, count):
    ways = [Capitals() for _ in range(count)]
    for number in reversed(range(count)):  # the first joins all parts
        run(tmp_path / "out", ways[number], share=Share(number, count))
    assert (tmp_path / "out").read_bytes() == at_once
    assert sorted(line for way in ways for line in way.translated) == sorted(LINES)


def test_another_number_of_processes_goes_on(tmp_path, at_once):
    for number in (1, 2):
        run(tmp_path / "out", Capitals(), share=Share(number, 3))
    rest = Capitals()
    run(tmp_path / "out", rest)
    assert (tmp_path / "out").read_bytes() == at_once and len(rest.translated) == 8


def test_parts_of_other_lines_or_another_model_are_not_used(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", Capitals(16))
    changed = [*LINES[:5], "new", *LINES[6:]]
    rest = Capitals()
    run(tmp_path / "out", rest, changed)
    assert len(rest.translated) == 4 + 7 and "NEW" in (tmp_path / "out").read_text()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", Capitals(16))
    other = Capitals()
    run(tmp_path / "out", other, identity="model b")
    assert len(other.translated) == len(LINES)


def test_nothing_in_nothing_out(tmp_path):
    run(tmp_path / "out", Capitals(), [])
    assert (tmp_path / "out").read_bytes() == b""


@pytest.mark.parametrize("damage", ["cut", "flipped", "no digest", "empty"])
def test_a_damaged_part_is_translated_again(tmp_path, at_once, damage):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", Capitals(16))
    part = sorted(file for file in (tmp_path / "out.parts").iterdir() if file.suffix != ".sha256")[1]
    content = part.read_bytes()
    if damage == "no digest":  # a kill between the two
        part.with_name(f"{part.name}.sha256").unlink()
    else:
        flipped = content[:5] + bytes([content[5] ^ 1]) + content[6:]
        part.write_bytes({"cut": content[:-7], "flipped": flipped, "empty": b""}[damage])
    rest = Capitals()
    run(tmp_path / "out", rest)
    assert (tmp_path / "out").read_bytes() == at_once and len(rest.translated) == 4 + len(LINES) - 16


def test_a_file_where_the_parts_would_be_is_named(tmp_path):
    (tmp_path / "out.parts").touch()
    with pytest.raises(ValueError, match="out.parts: is in the way"):
        run(tmp_path / "out", Capitals())
