"""How many texts of each side have which length: counted in a fixed number of bins, as text and as a picture."""

import io

import numpy as np

# 1, 2, 3, 4, 6, 8, 12, 16, 24, ... : where bins begin; the last one has no end
_STARTS = np.array([0, 1, 2] + [start for power in range(1, 15) for start in (3 << power - 1, 1 << power + 1)])
_BAR = 30  # characters


class Histogram:
    """Texts of both sides by their length in `unit` ("characters")."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.counts = np.zeros((2, len(_STARTS)), dtype=np.int64)  # [source and target, bins]
        self.totals = np.zeros(2, dtype=np.int64)  # lengths
        self.longest = np.zeros(2, dtype=np.int64)

    def add(self, source: np.ndarray, target: np.ndarray) -> None:
        """Counts the lengths of more pairs: int [pairs]."""
        for side, lengths in enumerate((source, target)):
            if len(lengths):
                bins = np.searchsorted(_STARTS, lengths, side="right") - 1
                self.counts[side] += np.bincount(bins, minlength=len(_STARTS))
                self.totals[side] += lengths.sum()
                self.longest[side] = max(self.longest[side], lengths.max())

    def bins(self) -> list[tuple[str, int, int]]:
        """Returns the label and the texts of source and target of each bin, from the first used one to the last."""
        used = np.flatnonzero(self.counts.sum(axis=0))
        rows = []
        for i in range(used[0], used[-1] + 1) if len(used) else ():
            start = int(_STARTS[i])
            last = int(_STARTS[i + 1]) - 1 if i + 1 < len(_STARTS) else None
            label = f"{start}+" if last is None else str(start) if last == start else f"{start}-{last}"
            rows.append((label, int(self.counts[0, i]), int(self.counts[1, i])))
        return rows

    def lines(self) -> list[str]:
        """Returns the histogram as lines of text, a bin each."""
        rows = self.bins()
        most = max([1, *(count for _, *counts in rows for count in counts)])
        shown = [f"{self.unit:>12}  {'source':>12}  {'':<{_BAR}}  {'target':>12}"]
        for label, *counts in rows:
            bars = ["#" * -(-_BAR * count // most) for count in counts]  # something for one already
            shown.append(f"{label:>12}  {counts[0]:>12,}  {bars[0]:<{_BAR}}  {counts[1]:>12,}  {bars[1]}")
        return [line.rstrip() for line in shown]


def picture(histograms: list[Histogram]) -> bytes:
    """Returns a PNG with a chart for each histogram. Raises ValueError where matplotlib is missing."""
    check_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4 * len(histograms)), layout="constrained")
    for axes, histogram in zip(np.atleast_1d(figure.subplots(len(histograms))), histograms, strict=True):
        rows = histogram.bins()
        places = np.arange(len(rows))
        for side, name in enumerate(("source", "target")):
            axes.bar(places + (side - 0.5) * 0.4, [row[1 + side] for row in rows], 0.4, label=name)
        axes.set_xticks(places, [label for label, *_ in rows], rotation=60)
        axes.set_xlabel(histogram.unit)
        axes.set_ylabel("texts")
        axes.legend()
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


def check_matplotlib() -> None:
    """Raises ValueError where matplotlib is missing."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError as error:
        raise ValueError("a picture needs matplotlib: pip install 'mt[plot]'") from error
