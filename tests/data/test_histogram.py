import sys

import numpy as np
import pytest

from mt.data.histogram import Histogram, picture


def test_bins_and_text() -> None:
    histogram = Histogram("characters")
    assert histogram.bins() == [] and len(histogram.lines()) == 1
    histogram.add(np.array([1, 5, 5, 70_000]), np.array([3, 3, 3, 3]))
    histogram.add(np.array([4]), np.array([12]))
    rows = histogram.bins()
    assert [row for row in rows if row[1] or row[2]] == [
        ("1", 1, 0), ("3", 0, 4), ("4-5", 3, 0), ("12-15", 0, 1), ("32768+", 1, 0),
    ]  # fmt: skip
    assert rows[0][0] == "1" and rows[-1][0] == "32768+"  # empty bins between them are shown
    assert histogram.totals.tolist() == [70_015, 24] and histogram.longest.tolist() == [70_000, 12]
    lines = histogram.lines()
    assert len(lines) == 1 + len(rows) and lines[3].split() == ["3", "0", "4", "#" * 30]
    assert lines[4].split() == ["4-5", "3", "#" * 23, "0"]


def test_picture() -> None:
    pytest.importorskip("matplotlib")
    histogram = Histogram("characters")
    histogram.add(np.array([1, 5]), np.array([3, 3]))
    assert picture([histogram]).startswith(b"\x89PNG") and picture([histogram, histogram]).startswith(b"\x89PNG")


def test_picture_without_matplotlib(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"pip install 'mt\[plot\]'"):
        picture([])
