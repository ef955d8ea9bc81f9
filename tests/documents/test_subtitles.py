import io

import pytest
import srt
import webvtt

from tests.documents.samples import SRT, VTT, same, translated, upper


def test_cues_keep_their_times_and_places() -> None:
    before, after = list(srt.parse(SRT.decode())), list(srt.parse(translated("srt", SRT, upper).decode()))
    assert [(c.index, c.start, c.end, c.proprietary) for c in before] == [
        (c.index, c.start, c.end, c.proprietary) for c in after
    ]
    assert [cue.content for cue in after] == [
        "THEY READ <i>GOOD BOOKS\nEVERY DAY</i> AND DRINK TEA.",
        "- WHERE IS IT?\n- I DO NOT KNOW.",
        "♪",
    ]


def test_webvtt_keeps_styles_notes_names_and_settings() -> None:
    before, after = (webvtt.from_string(data.decode()) for data in (VTT, translated("vtt", VTT, upper)))
    assert [(c.identifier, c.start, c.end) for c in before] == [(c.identifier, c.start, c.end) for c in after]
    assert [style.text for style in before.styles] == [style.text for style in after.styles]
    assert after[0].raw_text == "<v Ann>GOOD MORNING &amp; WELCOME.</v>"
    assert after[1].raw_text == "IT IS <00:03.500>LATE."


def test_a_sentence_over_two_lines_is_asked_for_once_and_wrapped_again() -> None:
    data = b"1\r\n00:00:01,000 --> 00:00:02,000\r\nthey read good\r\nbooks every day.\r\n\r\n"
    asked = []

    def chinese(sentences: list[str]) -> list[str]:
        asked.extend(sentences)
        return ["他们每天都读好的书，也喝茶。" for _ in sentences]

    found = translated("srt", data, chinese, target="zh").decode()
    assert asked == ["they read good books every day."]
    assert found.split("\r\n")[2:5] == ["他们每天都读好", "的书，也喝茶。", ""]


def test_a_short_translation_takes_fewer_lines_and_a_mark_begins_none() -> None:
    data = b"1\n00:00:01,000 --> 00:00:02,000\na\nb\nc\n"
    assert translated("srt", data, lambda s: ["好。" for _ in s], target="zh").decode().split("\n")[2:] == ["好。", ""]


@pytest.mark.parametrize("dash", ["-", "–", "- <i>", "<i>- "])
def test_speakers_are_translated_apart(dash: str) -> None:
    asked = []
    data = f"1\n00:00:01,000 --> 00:00:02,000\n{dash}who is\n{dash}me\n".encode()
    translated("srt", data, lambda sentences: asked.extend(sentences) or sentences)
    assert asked == ["who is", "me"]


def test_a_cue_without_text_and_blank_lines_with_spaces_stay() -> None:
    data = b"1\n00:00:01,000 --> 00:00:02,000\n\n2\n00:00:02.1 --> 00:00:03.2\n \t\n\n\n3\n0:00:04,0 --> 0:00:05,0\nhi"
    assert translated("srt", data, same) == data
    assert translated("srt", data, upper) == data[:-2] + b"HI"
    assert len(list(srt.parse(io.StringIO(data.decode()).read(), ignore_errors=True))) == 3
