"""A small made-up corpus: English words, and as their translation the same words backwards in capitals."""

import random

import pytest

WORDS = "tea rice red green good books read they eat drink every day love china".split()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    place = tmp_path_factory.mktemp("corpus")
    generator = random.Random(0)
    for name, count in (("train", 80), ("valid", 10)):
        lines = []
        for _ in range(count):
            words = [generator.choice(WORDS) for _ in range(generator.randint(1, 9))]
            lines.append(" ".join(words) + ".\t" + " ".join(reversed(words)).upper() + ".\n")
        (place / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return place
