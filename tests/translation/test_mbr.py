import itertools

import numpy as np
import pytest
from sacrebleu.metrics import CHRF

from mt.translation.mbr import expected_chrf

TEXTS = [
    "We drink tea every day.",
    "We drink green tea each day",
    "They drink coffee.",
    "我们每天喝茶。",
    "我们天天喝绿茶",
    "a",
    "ab",
    "",
    "  spaces   do not count ",
    "We drink tea every day.",
]


def test_equals_sacrebleu():
    metric = CHRF()
    expected = np.zeros((len(TEXTS), len(TEXTS)))
    for (i, hypothesis), (j, reference) in itertools.product(enumerate(TEXTS), enumerate(TEXTS)):
        expected[i, j] = metric.sentence_score(hypothesis, [reference]).score
    assert expected_chrf(TEXTS) == pytest.approx(expected.mean(1), abs=1e-9)


def test_the_sample_in_the_middle_wins():
    assert expected_chrf(["tea is good", "tea is very good", "the weather is bad"]).argmax() == 1
    assert expected_chrf(["only one"]) == pytest.approx([100])
