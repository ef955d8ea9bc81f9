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


def test_a_chinese_sentence_over_two_lines_has_no_space_between_them() -> None:
    asked = []
    data = "1\n00:00:01,000 --> 00:00:02,000\n他们每天\n都读 Star\nWars\n".encode()
    assert translated("srt", data, lambda sentences: asked.extend(sentences) or sentences, "zh", "en") == data
    assert asked == ["他们每天都读 Star Wars"]


def test_what_a_speaker_says_in_two_lines_is_one_text() -> None:
    asked = []
    data = b"1\n00:00:01,000 --> 00:00:02,000\n- they read\ngood books.\n- no.\n"
    assert translated("srt", data, lambda sentences: asked.extend(sentences) or sentences) == data
    assert asked == ["they read good books.", "no."]


def test_a_number_without_a_blank_line_before_it_is_of_the_next_cue() -> None:
    data = b"1\n00:00:01,000 --> 00:00:02,000\nhi there\n2\n00:00:02,000 --> 00:00:03,000\nbye\n"
    assert translated("srt", data, upper) == data.replace(b"hi there", b"HI THERE").replace(b"bye", b"BYE")


def test_text_behind_a_blank_line_is_of_the_cue_in_subrip_only() -> None:
    cue = b"00:00:01.000 --> 00:00:02.000\nhi\n\nthere\n\n2\n00:00:02.000 --> 00:00:03.000\nbye\n"
    upper_case = cue.replace(b"hi", b"HI").replace(b"bye", b"BYE")
    assert translated("srt", b"1\n" + cue, upper) == b"1\n" + upper_case.replace(b"there", b"THERE")
    assert translated("vtt", b"WEBVTT\n\n" + cue, upper) == b"WEBVTT\n\n" + upper_case


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("<i>good\nmorning</i>", "Morgen", "<i>Morgen</i>"),
        ("they <b>read\nnow</b>, too", "THEY <1>READ<2>, TOO", "THEY\n<b>READ</b>, TOO"),
        ("they read\n<b>good</b> books", "THEY READ <1>GOOD<2> BOOKS", "THEY READ\n<b>GOOD</b> BOOKS"),
    ],
)
def test_a_tag_stays_at_its_word(text: str, translation: str, expected: str) -> None:
    data = f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n".encode()
    assert translated("srt", data, lambda s: [translation for _ in s]).decode().split("\n", 2)[2] == f"{expected}\n"


def test_a_cue_without_text_and_blank_lines_with_spaces_stay() -> None:
    data = b"1\n00:00:01,000 --> 00:00:02,000\n\n2\n00:00:02.1 --> 00:00:03.2\n \t\n\n\n3\n0:00:04,0 --> 0:00:05,0\nhi"
    assert translated("srt", data, same) == data
    assert translated("srt", data, upper) == data[:-2] + b"HI"
    assert len(list(srt.parse(io.StringIO(data.decode()).read(), ignore_errors=True))) == 3
