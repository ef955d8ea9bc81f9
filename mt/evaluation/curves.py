"""A run's log.jsonl as curves, and curves as the geometry of a chart: numbers that a template draws as SVG."""

import json
import math
import warnings
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 30  # margins
_TICKS = 5  # about so many on an axis
_POINTS = 400  # at most so many of a curve are drawn, evenly chosen

Points = list[tuple[int, float]]  # (update, value)


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: where it is drawn, and its text."""

    place: float
    label: str


@dataclass(frozen=True)
class Line:
    """One curve: its name, the points of a polyline in drawing units, and each point with its text."""

    name: str
    polyline: str
    marks: list[tuple[float, float, str]]


@dataclass(frozen=True)
class Chart:
    """Curves over updates in a box of WIDTH x HEIGHT drawing units."""

    title: str
    note: str
    lines: list[Line]
    x_ticks: list[Tick]
    y_ticks: list[Tick]


def read_log(file: Path) -> dict[str, Points]:
    """Returns curves by "train.loss", "train.learning_rate", "valid.loss", "valid.bleu" and "valid.chrf".

    What a session wrote after the checkpoint that a later one went on from never became part of the run: where steps go
    back, all curves do. Values that are not finite are left out, and so are lines that a kill cut off, with a warning.
    """
    keys = "train.loss", "train.learning_rate", "valid.loss", "valid.bleu", "valid.chrf"
    curves: dict[str, Points] = {key: [] for key in keys}
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            event, step = entry["event"], entry.get("step")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            warnings.warn(
                f"{file}, line {number}: is no event of a run's log, and left out of the curves", stacklevel=2
            )
            continue
        if not isinstance(step, int) or step < 0:
            continue
        for key, curve in curves.items():
            kind, name = key.split(".")
            while curve and curve[-1][0] > step - (kind == event):
                curve.pop()
            value = entry.get(name) if kind == event else None
            if isinstance(value, int | float) and math.isfinite(value):
                curve.append((step, value))
    return curves


def training_charts(log: Path, signatures: dict[str, str]) -> list[Chart]:
    """Returns charts of loss, learning rate and validation scores, each where the log has such values.

    `signatures` are those of the scores, by "bleu" and "chrf"; a log does not hold them.
    """
    told = "".join(f" {name}|{signature}" for name, signature in signatures.items())
    curves = read_log(log)
    wanted = [
        (
            "Loss",
            "Nats per target token. In training with dropout and label smoothing, in validation without.",
            {"training": curves["train.loss"], "validation": curves["valid.loss"]},
        ),
        (
            "Learning rate",
            "Of Adam; the matrices of Muon have a rate of their own with the same course.",
            {"learning rate": curves["train.learning_rate"]},
        ),
        (
            "BLEU and chrF in validation",
            "Of at most trainer.validate_max_sentences sentences, with trainer.validation_beam_size." + told,
            {"BLEU": curves["valid.bleu"], "chrF": curves["valid.chrf"]},
        ),
    ]
    return [chart(title, note, lines) for title, note, lines in wanted if any(lines.values())]


def chart(title: str, note: str, curves: dict[str, Points]) -> Chart:
    """Returns the geometry of curves with axes in round numbers. At least one curve has a point."""
    xs = [x for points in curves.values() for x, _ in points]
    ys = [y for points in curves.values() for _, y in points]
    x_values, y_values = _round_numbers(0, max(xs)), _round_numbers(min(ys), max(ys))
    x_low, x_high = 0, max(max(xs), 1)
    y_low, y_high = y_values[0], y_values[-1]

    def across(x: float) -> float:
        return round(LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT), 1)

    def down(y: float) -> float:
        return round(HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM), 1)

    lines = []
    for name, points in curves.items():
        every = math.ceil(len(points) / _POINTS) or 1
        drawn = points[:-1:every] + points[-1:]
        places = [(across(x), down(y), f"update {x:,}: {y:.4g}") for x, y in drawn]
        lines.append(Line(name, " ".join(f"{x},{y}" for x, y, _ in places), places))
    x_ticks = [Tick(across(value), f"{value:,.0f}") for value in x_values if 0 <= value <= x_high and value % 1 == 0]
    y_ticks = [Tick(down(value), f"{value:g}") for value in y_values]
    return Chart(title, note, lines, x_ticks, y_ticks)


def _round_numbers(low: float, high: float) -> list[float]:
    """Returns evenly spaced round numbers, the first at most `low`, the last at least `high`, at least two.

    They differ in the six digits that a label shows.
    """
    if high - low <= 1e-4 * max(abs(low), abs(high)):
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.10g}") for index in range(first, last + 1)]
