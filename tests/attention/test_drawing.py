"""Maps as text, pictures and pages: what stands there is what the model did, and text stays text."""

import io
import json
import re
import sys

import pytest
import torch

from mt.attention import picture, terminal
from mt.attention.choice import Choice
from mt.attention.page import page
from mt.attention.view import Map, View

HOSTILE = "</script><img src=x onerror=alert(1)>"


def small_view(word: str = "鱼") -> View:
    weights = torch.rand(2, 3, 3, 3, generator=torch.Generator().manual_seed(0)).softmax(-1)
    source, target = ["▁fish", "▁$x_1$", "</s>"], ["<s>", "▁", word]
    return View(
        source,
        target,
        ["▁", word, "</s>"],
        [[(word, 0.75), ("</s>", 0.25)]] * 3,
        Map("encoder", source, source, weights),
        Map("decoder", target, target, weights.tril()),
        Map("cross", target, source, weights.flip(-1)),
    )


def test_tab_separated_numbers(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    seen = small_view()
    terminal.show(seen, Choice("cross", layer=2))
    blocks = capfdbinary.readouterr().out.decode().split("# ")[1:]
    assert [block.split("\n")[0] for block in blocks] == [
        *(f"cross-attention (from target to source), layer 2, head {head}" for head in (1, 2, 3)),
        "likeliest next tokens and their probabilities",
    ]
    for head, block in enumerate(blocks[:3]):
        lines = [line.split("\t") for line in block.strip("\n").split("\n")[1:]]
        assert lines[0] == ["", *seen.source]
        assert [line[0] for line in lines[1:]] == ["<s> → ▁", "▁ → 鱼", "鱼 → </s>"]
        numbers = torch.tensor([[float(cell) for cell in line[1:]] for line in lines[1:]])
        torch.testing.assert_close(numbers, seen.cross.weights[1, head], rtol=0, atol=6e-5)
    assert blocks[3].split("\n")[3] == "鱼\t鱼\t0.7500\t</s>\t0.2500"


def test_a_terminal_gets_columns_in_line_and_blocks_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.cells import cell_len

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", Terminal())
    terminal.show(small_view(), Choice("cross", 1, 0))
    plain = re.sub("\x1b\\[[0-9;]*m", "", sys.stdout.getvalue())
    assert "\x1b[" in sys.stdout.getvalue()
    heads = [line for line in plain.split("\n") if "▁fish" in line or line.endswith("</s>") and "→" not in line]
    assert len(heads) == 2  # the map is cut into two blocks
    rows = [line for line in plain.split("\n") if re.match(r"^(<s>|▁|鱼) → .*\d$", line)]
    assert len(rows) == 6
    assert {cell_len(row) for row in rows[:3]} == {cell_len(heads[0])} and cell_len(heads[0]) <= 24


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice("self"), "--kind=self: must be one of encoder, decoder, cross"),
        (Choice(layer=3), "--layer=3: must be between 1 and 2"),
        (Choice(head=4), "--head=4: must be between 1 and 3, or 0"),
    ],
)
def test_what_is_not_there_cannot_be_chosen(choice: Choice, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        choice.maps(small_view())


def test_a_page_holds_the_weights_and_nothing_from_outside() -> None:
    seen = small_view(HOSTILE)
    text = page(seen, HOSTILE, "en", "zh")
    assert HOSTILE not in text and "<img" not in text and "&lt;img" in text
    assert not re.search("https?:|@import|url\\(|<link", text)
    assert text.count("<script") == text.count("</script>") == 2
    data = json.loads(re.search('id="data">(.*)</script>', text).group(1))
    assert data["maps"]["cross"]["rows"][2] == HOSTILE and data["written"] == seen.written
    for one in seen.maps:
        kept = torch.tensor(data["maps"][one.kind]["weights"]) / data["steps"]
        torch.testing.assert_close(kept, one.weights, rtol=0, atol=6e-4)


def test_a_picture_is_a_png_and_the_same_again() -> None:
    pytest.importorskip("matplotlib")
    found = picture.picture(small_view("x"), Choice())
    assert found == picture.picture(small_view("x"), Choice())
    all_of_it, one_row = (
        picture.pixels(p).shape for p in (found, picture.picture(small_view("x"), Choice("cross", head=0)))
    )
    assert found.startswith(b"\x89PNG") and all_of_it[2] == 4
    assert all_of_it[0] > 4 * one_row[0]  # 3 kinds of 2 layers under each other; one kind, its layers side by side


def test_weights_are_where_they_belong() -> None:
    pytest.importorskip("matplotlib")
    weights = torch.zeros(1, 1, 2, 2)
    weights[0, 0, 0, 1] = weights[0, 0, 1, 0] = 1
    pixels = picture.pixels(picture.heatmaps([[("", ["a", "b"], ["a", "b"], weights[0, 0])]]))
    dark = ((pixels[:, :, 0] < 0.1) & (pixels[:, :, 2] > 0.35)).nonzero()  # blue, not the black of names
    middle = (dark[0].min() + dark[0].max()) / 2
    assert dark[1][dark[0] < middle - 3].min() > dark[1][dark[0] > middle + 3].max()  # row a looks at b, on the right


def test_characters_without_a_font_become_numbers() -> None:
    pytest.importorskip("matplotlib")
    with pytest.warns(UserWarning, match="no installed font has \U000f0000: their tokens are numbered"):
        assert picture.picture(small_view("\U000f0000"), Choice("decoder", 1)).startswith(b"\x89PNG")
    assert picture._names(["<s>", "\U000f0000", "$a"], {"\U000f0000"}) == ["<s>", "2", r"\$a"]


def test_a_font_that_has_the_characters_is_found_or_they_are_missing() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    families, missing = picture._fonts("<s>▁我爱")
    assert families[0] == "DejaVu Sans" and not any("Last Resort" in family for family in families)
    assert missing <= set("我爱")
    for character in set("我爱") - missing:  # not a box: the font has a glyph of this very name
        files = [findfont(FontProperties(family=family), fallback_to_default=False) for family in families]
        assert any(ord(character) in FT2Font(file).get_charmap() for file in files)


def test_a_picture_that_is_too_large_is_refused() -> None:
    pytest.importorskip("matplotlib")
    names, weights = ["a"] * 120, torch.zeros(120, 120)
    with pytest.raises(ValueError, match="choose some by --kind, --layer, --head"):
        picture.heatmaps([[("", names, names, weights)]] * 7)


def test_without_matplotlib_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match="pip install matplotlib"):
        picture.picture(small_view(), Choice())
