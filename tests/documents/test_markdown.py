import pytest
from markdown_it import MarkdownIt

from tests.documents.samples import MD, same, translated, upper


def tags(text: str) -> list[tuple[str, str, object]]:
    """Returns the structure of a document without its texts."""
    found = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        found.append((token.type, token.tag, token.attrs))
        found += [(child.type, child.tag, child.attrs) for child in token.children or [] if "break" not in child.type]
    return [entry for entry in found if entry[0] != "text"]


def test_the_structure_stays() -> None:
    result = translated("md", MD, upper).decode()
    assert tags(result) == tags(MD.decode())
    assert result.startswith("---\ntitle: A Title\n---\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one *two* `Code`\n", "ONE *TWO* `Code`\n"),
        ("see [the page](a/B.md) and ![a cup](C.png)\n", "SEE [THE PAGE](a/B.md) AND ![A CUP](C.png)\n"),
        ("see [the page][Ref]\n\n[Ref]: x\n", "SEE [THE PAGE][Ref]\n\n[Ref]: x\n"),
        ("- [ ] do it\n", "- [ ] DO IT\n"),
        ("head\n====\n\ntext", "HEAD\n====\n\nTEXT"),
        ("> a\n> b\n>\n> c\n", "> A B\n>\n> C\n"),
        ("1. a\n\n   b\n", "1. A\n\n   B\n"),
        ("    Code\n\ntext\n", "    Code\n\nTEXT\n"),
        ("a_b_c <https://x.Y>\n", "A_B_C <https://x.Y>\n"),
        (
            "see [a](x_(y).md), [b](x 'Title'), [c](<X y>), [d]( x (y) )\n",
            "SEE [A](x_(y).md), [B](x 'Title'), [C](<X y>), [D]( x (y) )\n",
        ),
        ("see ``a ` b`` and `c`, `` d\n", "SEE ``a ` b`` AND `c`, `` D\n"),
        ("a[^note].\n\n[^note]: the note.\n", "A[^note].\n\n[^note]: THE NOTE.\n"),
        ("a <!-- b > c --> d\n", "A <!-- b > c --> D\n"),
        (":::tip Head\nthe text\n:::\n", ":::tip Head\nTHE TEXT\n:::\n"),
        ("+++\ntitle = 'a'\n+++\n\nb\n", "+++\ntitle = 'a'\n+++\n\nB\n"),
        ("---\n---\na\n\n---\nb\n", "---\n---\nA\n\n---\nB\n"),
        ("| a \\| b | b |\n|---|---|\n| \\| c | c |\n", "| A \\| B | B |\n|---|---|\n| \\| C | C |\n"),
    ],
)
def test_cases(text: str, expected: str) -> None:
    assert translated("md", text.encode(), upper).decode() == expected
    assert translated("md", text.encode(), same).decode() == text


def test_a_translation_begins_no_list_and_no_cell() -> None:
    assert translated("md", b"one\n", lambda s: ["1. eins" for _ in s]) == b"1\\. eins\n"
    assert translated("md", b"one\n", lambda s: ["# eins" for _ in s]) == b"\\# eins\n"
    assert translated("md", b"one\n", lambda s: ["-eins" for _ in s]) == b"-eins\n"
    assert translated("md", b"| a |\n|---|\n| b |\n", lambda s: ["x|y" for _ in s]).count(b"x\\|y") == 2


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("run `x` now", "<1> run now", "`x` run now"),
        ("run *it* now", "<1>it<2> run now", "*it* run now"),
    ],
)
def test_a_translation_may_begin_with_mark_up(source: str, translation: str, expected: str) -> None:
    assert translated("md", source.encode(), lambda s: [translation for _ in s]).decode() == expected


def test_an_escaped_character_stays_escaped() -> None:
    def without(sentences: list[str]) -> list[str]:
        return [sentence.replace("\\", "") for sentence in sentences]

    data = b"a \\*b\\* \\`c d\\` \\[e](f)\n"
    assert translated("md", data, without) == data
