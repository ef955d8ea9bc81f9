"""Attention maps as PNG pictures, by matplotlib, which is imported when a picture is asked for."""

import io
import itertools
import logging
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from mt.attention.choice import TITLES, Choice
from mt.attention.view import View

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 100
_LARGEST = 20_000  # dots that a picture may be wide or high: more cannot be opened everywhere
_ALWAYS = "DejaVu Sans"  # comes with matplotlib
_LIKELY = re.compile("CJK|WenQuanYi|Source Han|Hei|Song|Ming|Gothic|Mincho|Noto Sans|Unicode", re.IGNORECASE)
_SHOWN = 10  # missing characters in a warning


def check_matplotlib() -> None:
    """Raises ValueError where matplotlib is missing: for asking before long work."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ValueError("pictures need matplotlib: pip install matplotlib") from error


def picture(view: View, choice: Choice) -> bytes:
    """Returns a PNG of the chosen maps: a row for each layer of each kind, a column for each head.

    With one head alone, or the mean of all: a row for each kind, a column for each layer.

    Tokens whose characters no installed font has are shown by their numbers, with a warning. Raises ValueError where
    matplotlib is missing and where the picture would be too large.
    """
    rows = []
    for one in choice.maps(view):
        asking = view.written if one.kind == "cross" else one.rows
        layers = [
            [(f"{TITLES[one.kind]}\n{name}", asking, one.columns, weights) for name, weights in panels]
            for panels in choice.panels(one)
        ]
        rows += layers if choice.head is None else [list(itertools.chain(*layers))]
    return heatmaps(rows)


def pixels(png: bytes) -> "np.ndarray":
    """Returns [height, width, 4] float32, 0 to 1, of a PNG made here."""
    from matplotlib.image import imread

    return imread(io.BytesIO(png))


def heatmaps(rows: list[list[tuple[str, Sequence[str], Sequence[str], Tensor]]], numbers: bool = False) -> bytes:
    """Returns a PNG of panels in rows. A panel: title, names of rows and of columns, weights [rows, columns], 0 to 1.

    numbers: write each weight into its cell. Raises as `picture` does.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    panels = list(itertools.chain(*rows))
    longest = max(max(len(asking), len(asked)) for _, asking, asked, _ in panels)
    side = max(2.6, 0.26 * longest + 1.1)  # inches
    size = side * max(map(len, rows)), (side + 0.35) * len(rows)
    if max(size) * _DOTS_PER_INCH > _LARGEST:
        raise ValueError(
            f"a picture of {len(panels)} maps of {longest} tokens is too large: choose some by --kind, --layer, --head"
        )
    figure = Figure(figsize=size, dpi=_DOTS_PER_INCH, layout="constrained")
    grid = figure.subplots(len(rows), max(map(len, rows)), squeeze=False)
    fonts, missing = _fonts("".join(itertools.chain(*(names for panel in panels for names in panel[1:3]))))
    for axes_row, row in zip(grid, rows, strict=True):
        for axes in axes_row[len(row) :]:
            axes.remove()
        for axes, (title, asking, asked, weights) in zip(axes_row, row, strict=False):
            _draw(axes, title, [_names(asking, missing), _names(asked, missing)], weights, fonts, numbers)
    if missing:
        shown = "".join(sorted(missing)[:_SHOWN])
        warnings.warn(
            f"no installed font has {shown}: their tokens are numbered in the picture; install one, such as "
            "fonts-noto-cjk",
            stacklevel=1,  # this very line, so that several pictures warn once
        )
    return png(figure)


def png(figure: "Figure") -> bytes:
    """Returns a figure as PNG, equal for equal figures."""
    file, log = io.BytesIO(), logging.getLogger("matplotlib.font_manager")
    level = log.level
    log.setLevel(logging.ERROR)  # that a font has no face of normal weight does not matter here
    try:
        figure.savefig(file, format="png", metadata={"Software": None})
    finally:
        log.setLevel(level)
    return file.getvalue()


def _draw(axes: "Axes", title: str, names: list[list[str]], weights: Tensor, fonts: list[str], numbers: bool) -> None:
    axes.imshow(weights.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="equal")
    axes.set_title(title, fontsize=8)
    axes.set_yticks(range(len(names[0])), names[0], fontfamily=fonts, fontsize=8)
    axes.set_xticks(range(len(names[1])), names[1], fontfamily=fonts, fontsize=8, rotation=90)
    axes.tick_params(length=0, top=True, bottom=False, labeltop=True, labelbottom=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if numbers:
        for row, values in enumerate(weights.tolist()):
            for column, value in enumerate(values):
                colour = "white" if value > 0.5 else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=6, color=colour)


def _names(names: Sequence[str], missing: set[str]) -> list[str]:
    """Returns names that can be drawn; matplotlib takes $ for the beginning of a formula."""
    return [
        str(number) if set(name) & missing else name.replace("$", r"\$") for number, name in enumerate(names, start=1)
    ]


def _fonts(text: str) -> tuple[list[str], set[str]]:
    """Returns installed families that together have the characters of a text, and the characters that none has."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    ours = next(entry for entry in manager.ttflist if entry.name == _ALWAYS)
    families, missing = [_ALWAYS], {c for c in text if not c.isspace()} - _characters(ours.fname)
    known = {entry.fname for entry in manager.ttflist}
    if missing:
        for file in set(font_manager.findSystemFonts()) - known:  # installed since matplotlib made its list
            try:
                manager.addfont(file)
            except (OSError, RuntimeError):  # damaged, or of a kind that it cannot read
                continue
    # matplotlib's own Last Resort has a box for every character: that is none
    entries = [entry for entry in manager.ttflist if not entry.name.startswith("Last Resort")]
    for entry in sorted(entries, key=lambda e: (not _LIKELY.search(e.name), e.weight != 400, e.name)):
        if not missing:
            break
        has = _characters(entry.fname)
        if entry.name not in families and missing & has:
            families.append(entry.name)
            missing -= has
    return families, missing


def _characters(file: str) -> set[str]:
    from matplotlib.ft2font import FT2Font

    try:
        return set(map(chr, FT2Font(file).get_charmap()))
    except (OSError, RuntimeError):  # a font that is listed and has gone, or is damaged
        return set()
