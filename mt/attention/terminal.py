"""Attention maps as text: coloured tables for a person at a terminal, tab-separated numbers for everything else."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from mt.attention.choice import TITLES, Choice
from mt.attention.view import Map, View

if TYPE_CHECKING:
    from rich.console import Console

_DARK, _BRIGHT = (38, 50, 72), (255, 196, 84)  # of weight 0 and 1


def show(view: View, choice: Choice) -> None:
    """Writes the chosen maps and the likeliest next tokens to standard output."""
    maps = choice.maps(view)
    if not sys.stdout.isatty():
        from mt.translation.output import open_output

        with open_output(None) as file:
            file.write("".join(f"{line}\n" for line in _lines(view, maps, choice)).encode())
        return
    from rich.console import Console

    console = Console(highlight=False)
    for one in maps:
        for panels in choice.panels(one):
            for title, weights in panels:
                _print_map(console, f"{TITLES[one.kind]}, {title}", _rows(one, view), one.columns, weights)
    _print_next(console, view)


def _rows(map: Map, view: View) -> list[str]:
    """Returns the names of a map's rows; of cross-attention: what was read, and what is written then."""
    if map.kind != "cross":
        return map.rows
    return [f"{read} → {written}" for read, written in zip(view.target, view.written, strict=True)]


def _lines(view: View, maps: list[Map], choice: Choice) -> list[str]:
    lines = []
    for one in maps:
        for panels in choice.panels(one):
            for title, weights in panels:
                lines += [f"# {TITLES[one.kind]}, {title}", "\t".join(["", *one.columns])]
                for name, row in zip(_rows(one, view), weights.tolist(), strict=True):
                    lines.append("\t".join([name, *(f"{weight:.4f}" for weight in row)]))
    lines.append("# likeliest next tokens and their probabilities")
    for read, next_ones in zip(view.target, view.likeliest, strict=True):
        lines.append("\t".join([read, *(f"{token}\t{probability:.4f}" for token, probability in next_ones)]))
    return lines


def _print_map(console: "Console", title: str, rows: Sequence[str], columns: Sequence[str], weights: Tensor) -> None:
    """Prints one table, in blocks of as many columns as the terminal is wide enough for. Numbers are percent."""
    from rich.cells import cell_len
    from rich.text import Text

    first = max(map(cell_len, rows)) + 1
    widths = [max(cell_len(column), 3) + 1 for column in columns]
    console.print(Text(title, style="bold"))
    start = 0
    while start < len(columns):
        end, width = start + 1, first + widths[start]
        while end < len(columns) and width + widths[end] <= console.width:
            width, end = width + widths[end], end + 1
        header = Text(" " * first)
        for column, width in zip(columns[start:end], widths[start:end], strict=True):
            header.append(" " * (width - cell_len(column)) + column)
        console.print(header, soft_wrap=True)
        for name, row in zip(rows, weights[:, start:end].tolist(), strict=True):
            line = Text(name + " " * (first - cell_len(name)))
            for weight, width in zip(row, widths[start:end], strict=True):
                line.append(f"{100 * weight:{width}.0f}", style=_style(weight))
            console.print(line, soft_wrap=True)
        start = end
    console.print()


def _style(weight: float) -> str:
    """Returns colours for a weight: the more it is, the brighter; the root spreads out the small ones."""
    share = weight**0.5
    red, green, blue = (round(dark + share * (bright - dark)) for dark, bright in zip(_DARK, _BRIGHT, strict=True))
    return f"{'black' if share > 0.6 else 'white'} on rgb({red},{green},{blue})"


def _print_next(console: "Console", view: View) -> None:
    from rich.text import Text

    console.print(Text("likeliest next tokens, in percent", style="bold"))
    for read, next_ones in zip(view.target, view.likeliest, strict=True):
        found = "  ".join(f"{token} {100 * probability:.0f}" for token, probability in next_ones)
        console.print(Text(f"{read}  →  {found}"), soft_wrap=True)
