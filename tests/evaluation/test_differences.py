import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt.evaluation.differences import marked


@pytest.mark.parametrize(
    ("text", "other", "spans"),
    [
        ("the red cat", "the red cat", [("the red cat", False)]),
        ("the red cat", "the cat", [("the", False), (" ", False), ("red", True), (" ", False), ("cat", False)]),
        ("a  big red cat", "a cat", [("a", False), ("  ", False), ("big red", True), (" ", False), ("cat", False)]),
        ("我爱绿茶。", "我爱红茶。", [("我爱", False), ("绿", True), ("茶。", False)]),
        ("tea.", "tea!", [("tea", False), (".", True)]),
        ("", "tea", []),
        (" ", "tea", [(" ", False)]),
    ],
)
def test_words_that_the_other_lacks_are_marked(text: str, other: str, spans: list[tuple[str, bool]]) -> None:
    assert marked(text, other) == spans


@given(st.text(alphabet=" ab我茶.\u2028\t", max_size=20), st.text(alphabet=" ab我茶.\u2028\t", max_size=20))
def test_no_character_is_lost(text: str, other: str) -> None:
    spans = marked(text, other)
    assert "".join(span for span, _ in spans) == text
    assert not any(differs for _, differs in marked(text, text))
    assert not any(differs and span.isspace() for span, differs in spans)
