"""The walk-through as Markdown with its figures: docs/attention.md, and `mt attention --explain`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import torch
from torch import Tensor

from mt.attention import picture
from mt.attention.walk_through import (
    BEGUN,
    D_MODEL,
    ENGLISH,
    SENTENCE,
    Translating,
    WalkThrough,
    entropy,
    gradient_size,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def explain(walk: WalkThrough, pictures: dict[str, str]) -> str:
    """Returns the walk-through as Markdown. pictures: the file name of each of `figures`; none: tables alone."""
    folder = jinja2.FileSystemLoader(Path(__file__).parent, encoding="utf-8")
    environment = jinja2.Environment(  # Markdown, no HTML: nothing is escaped but by `_token`
        loader=folder, autoescape=False, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"shape": _shape, "mean": lambda weights: weights.mean(0), "token": _token}
    text = environment.get_template("walk_through.md").render(
        walk=walk,
        one=walk.one_head,
        three=walk.three_heads,
        pictures=pictures,
        table=table,
        sentence=SENTENCE,
        english=ENGLISH,
        begun=BEGUN,
        d_model=D_MODEL,
        difference=lambda a, b: float((a - b).abs().max()),
        head_names=lambda model: [*(f"head {head + 1}" for head in range(len(model.next_row))), "mean"],
        with_mean=lambda model: torch.cat([model.next_row, model.next_row.mean(0, keepdim=True)]),
        **_parts(walk),
    )
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n")) + "\n"


def _parts(walk: WalkThrough) -> dict[str, object]:
    """Returns parts of the numbers that the template shows, and what it says about softmax without the division."""
    one = walk.one_head
    given = one.weights[0, 0, :, None] * one.v.flatten(1)[:, :4]  # [n, 4]: what each token gives to the first
    without = torch.cat([one.weights, one.undivided_weights])  # [2, n, n]
    sharp = [[o.entropy, o.undivided_entropy, o.gradient, o.undivided_gradient] for o in walk.sharpness]
    return {
        "first_of_x": one.x[:, :4],
        "one_head_mixed": walk.three_heads.mixed[:, 0],
        "weighted_values": torch.cat([given, one.concatenated[:1, :4]]),
        "row_without": without[:, 0],
        "sizes": torch.stack([size(without).quantile(0.5, dim=1) for size in (entropy, gradient_size)], dim=1),
        "ln6": math.log(len(one.tokens)),
        "sharp_names": [f"d_k = {o.head_size}" for o in walk.sharpness],
        "sharp_values": torch.tensor(sharp, dtype=torch.float64),
    }


def figures(walk: WalkThrough) -> dict[str, bytes]:
    """Returns the PNGs of the walk-through by their names. Raises ValueError where matplotlib is missing."""
    one, three = walk.one_head, walk.three_heads
    heads = [(f"head {head + 1} of {len(three.weights)}", weights) for head, weights in enumerate(three.weights)]
    panels = [("one head", one.weights[0]), *heads]
    found = {
        "heads": picture.heatmaps([[(title, one.tokens, one.tokens, own) for title, own in panels]], numbers=True),
        "softmax": _sharpness_plot(walk),
    }
    rows = [[_cross_panel(model) for model in walk.models]]
    if walk.written:
        rows.append([_written_panel(model) for model in walk.written])
    found["translating"] = picture.heatmaps(rows, numbers=True)
    return found


def _cross_panel(model: Translating) -> tuple[str, list[str], list[str], Tensor]:
    view = model.view
    title = f"{model.name} weights: cross-attention\nlayer {model.layer + 1}, mean of its heads"
    return title, view.target, view.source, view.cross.weights[model.layer].mean(0)


def _written_panel(model: Translating) -> tuple[str, list[str], list[str], Tensor]:
    names, weights = model.view.target, model.view.decoder.weights[0].mean(0)
    return f"{model.name} weights: masked self-attention\nlayer 1, mean of its heads", names, names, weights


def _sharpness_plot(walk: WalkThrough) -> bytes:
    picture.check_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.6), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2)
    sizes = [one.head_size for one in walk.sharpness]
    _curves(left, "entropy of a row, nats", sizes, [[o.entropy, o.undivided_entropy] for o in walk.sharpness])
    _curves(right, "size of the gradient", sizes, [[o.gradient, o.undivided_gradient] for o in walk.sharpness])
    left.legend(fontsize=8)
    return picture.png(figure)


def _curves(axes: "Axes", title: str, sizes: list[int], pairs: list[list[float]]) -> None:
    for values, label, style in zip(zip(*pairs, strict=True), ("divided", "not divided"), ("o-", "s--"), strict=True):
        axes.plot(sizes, values, style, label=f"{label} by sqrt(d_k)", markersize=4)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, list(map(str, sizes)))
    axes.set_xlabel("d_k", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=9)
    axes.tick_params(labelsize=8)


def table(rows: Sequence[str], columns: Sequence[str], values: Tensor, decimals: int = 2, sums: bool = False) -> str:
    """Returns a Markdown table of numbers [rows, columns]; sums: with the sum of each row at its end."""
    head = ["", *map(_token, columns), *(["sum"] if sums else [])]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, row in zip(rows, values.tolist(), strict=True):
        numbers = [*row, *([sum(row)] if sums else [])]
        lines.append([_token(name), *(f"{number:.{decimals}f}" for number in numbers)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _shape(tensor: Tensor | tuple[int, ...]) -> str:
    return str(list(tensor.shape if isinstance(tensor, Tensor) else tensor))


def _token(text: str) -> str:
    """Returns a token as code where Markdown would read more into it, such as <s>."""
    return f"`{text}`" if set(text) & set("<>*_|`[]\\") and "`" not in text and "|" not in text else text
