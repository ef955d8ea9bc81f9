"""The corpus of most tests here."""

import pytest

from tests.training.small_runs import write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    place = tmp_path_factory.mktemp("corpus")
    write_corpus(place, 0, {"train": 80, "valid": 10}, ".")
    return place
