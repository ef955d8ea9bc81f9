"""Plants known damage in a part of a corpus, to see what cleaning finds of it and what it costs a model.

Takes two text files, line n translating line n (.gz, .xz and .zst too), and writes DIR/train.source.gz, train.target.gz
and planted.tsv: number of the line, from 1, and the kind of damage. The same files, share and seed give the same bytes.
"""

import argparse
import gzip
import random
import sys
from collections import Counter
from pathlib import Path

from mt.data.files import read_lines

CYRILLIC = str.maketrans("abcdefghiklmnoprstuvwz", "абцдефгхиклмнопрстувwз")
KINDS = (
    "misaligned", "untranslated", "cut off", "run together", "repeated", "other script", "entities", "mojibake",
    "lost characters", "invisible characters",
)  # fmt: skip


def main(argv: list[str]) -> None:
    """Writes the damaged corpus. Raises ValueError in one line where the files do not fit."""
    parser = argparse.ArgumentParser(description="Plant known damage in a part of a corpus.")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="a new folder")
    parser.add_argument("--share", type=float, default=0.2, help="of the pairs, from 0 to 1 (default 0.2)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    pairs = list(zip(read_lines(arguments.source), read_lines(arguments.target), strict=True))
    if len(pairs) < 2 or not 0 <= arguments.share <= 1:
        raise ValueError(f"needs two pairs or more, and --share from 0 to 1: {len(pairs)} pairs, {arguments.share}")
    damaged, planted = plant(pairs, arguments.share, arguments.seed)
    arguments.output.mkdir(parents=True)
    for side, name in enumerate(("source", "target")):
        content = "".join(pair[side] + "\n" for pair in damaged).encode()
        (arguments.output / f"train.{name}.gz").write_bytes(gzip.compress(content, mtime=0))
    lines = "".join(f"{number + 1}\t{kind}\n" for number, kind in planted.items())
    (arguments.output / "planted.tsv").write_bytes(lines.encode())
    for kind, count in Counter(planted.values()).most_common():
        print(f"{kind}\t{count}")


def plant(pairs: list[tuple[str, str]], share: float, seed: int) -> tuple[list[tuple[str, str]], dict[int, str]]:
    """Returns the pairs with a share of them damaged, and the kind of damage by place: as many of each kind."""
    rng = random.Random(seed)
    places = sorted(rng.sample(range(len(pairs)), round(share * len(pairs))))
    damaged, planted = list(pairs), {}
    for number, place in enumerate(places):
        kind = KINDS[number % len(KINDS)]
        damaged[place] = damage(kind, pairs, place, rng)
        planted[place] = kind
    return damaged, planted


def damage(kind: str, pairs: list[tuple[str, str]], place: int, rng: random.Random) -> tuple[str, str]:
    """Returns a pair with damage of one kind, most of which is on the target side."""
    source, target = pairs[place]
    other = (place + rng.randrange(1, len(pairs))) % len(pairs)
    if kind == "misaligned":
        return source, pairs[other][1]
    if kind == "untranslated":
        return source, source
    if kind == "cut off":
        return source, target[: len(target) // 4]
    if kind == "run together":
        return source, " ".join([target, *(pairs[(other + i) % len(pairs)][1] for i in range(3))])
    if kind == "repeated":
        return pairs[other]
    if kind == "other script":
        return source, target.lower().translate(CYRILLIC)
    if kind == "entities":
        return escaped(source), escaped(target)
    if kind == "mojibake":
        quoted = f"„{target}“" if target.isascii() else target
        return source, quoted.encode().decode("cp1252", errors="replace")
    if kind == "lost characters":
        return source, "".join("\ufffd" if rng.random() < 0.1 else c for c in target) + "\ufffd"
    return source, "\u200b ".join(target.split(" ")) + "\x07"


def escaped(text: str) -> str:
    """Returns the text with HTML entities for what is no ASCII, and for punctuation."""
    return "".join(c if c.isascii() and c not in ".,'" else f"&#{ord(c)};" for c in text)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, ValueError) as problem:
        sys.exit(f"plant_noise: {problem}")
