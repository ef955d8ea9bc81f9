"""Fetches English-German sentence pairs of tatoeba.org and writes data/tatoeba_en_de/{train,valid,test}.tsv.

Columns: English, German and, where the archive has it, the licence with the sentences' numbers and authors; no header.
Valid and test hold 1,000 pairs each, of 1,000 different English sentences that occur in no other split, letter case and
punctuation disregarded. The pairs come from the archive deu-eng.zip of manythings.org/anki, which grows: only the same
archive gives the same splits, and scores that compare. The address has not been tried yet; --zip takes a copy.
"""

import argparse
import http.client
import os
import shutil
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

from get_tatoeba_en_zh import is_complete, sha256, split, strip, write

URL = "https://www.manythings.org/anki/deu-eng.zip"
MEMBER = "deu.txt"
DATED_SHA256 = "b7688f84f99fa33c17397c14d8bd9cef1fdeb2ee0bf50074767023aee8926e28"
DATE = "2018-05-13"  # of the archive with this checksum

Row = tuple[str, ...]  # English, German and, in newer archives, the licence with both sentences' numbers and authors


def main(argv: list[str]) -> None:
    """Writes the splits, or does nothing where they are complete. Raises ValueError in one line otherwise."""
    parser = argparse.ArgumentParser(description="Fetch the Tatoeba EN-DE sentence pairs and split them.")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "data" / "tatoeba_en_de")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives other valid and test sets")
    parser.add_argument("--zip", type=Path, metavar="FILE", help="use this copy of deu-eng.zip, and fetch nothing")
    parser.add_argument("--url", default=URL, help="where the archive is fetched")
    arguments = parser.parse_args(argv)
    output: Path = arguments.output
    if is_complete(output, arguments.seed):
        print(f"{output}: complete", file=sys.stderr)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tatoeba-", dir=output.parent) as work:
        archive = arguments.zip or fetch(arguments.url, Path(work))
        checksum = sha256(archive)
        splits = split(clean(read_rows(archive)), arguments.seed)
        folder = Path(work) / "splits"
        source = f"{URL}, sha256 {checksum}"
        write(folder, splits, attribution(source, arguments.seed), source, arguments.seed)
        os.replace(folder, output)
    counts = ", ".join(f"{name} {len(rows):,}" for name, rows in splits.items())
    print(f"{output}: {counts} pairs from deu-eng.zip, sha256 {checksum}", file=sys.stderr)
    if checksum != DATED_SHA256:
        print(f"warning: not the archive of {DATE}: its splits, and so its scores, are others", file=sys.stderr)


def fetch(url: str, work: Path) -> Path:
    """Returns the downloaded archive."""
    file = work / "deu-eng.zip"
    request = urllib.request.Request(url, headers={"User-Agent": "mt (sentence pairs)"})  # Python's own may be refused
    try:
        with urllib.request.urlopen(request, timeout=60) as response, file.open("wb") as copy:
            shutil.copyfileobj(response, copy)
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError; the other: cut off
        raise ValueError(f"{url}: {error}; get deu-eng.zip with a browser and give it with --zip") from error
    return file


def read_rows(archive: Path) -> list[Row]:
    """Returns the rows of the archive. Raises ValueError, naming the line, for what is no pair."""
    try:
        with zipfile.ZipFile(archive) as file:
            lines = file.read(MEMBER).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except (KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{archive}: is no archive with {MEMBER} ({error})") from error
    rows: list[Row] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = tuple(line.decode("utf-8").rstrip("\r").split("\t"))
        expected = len(rows[0]) if rows else min(max(len(row), 2), 3)
        if len(row) != expected:
            raise ValueError(f"{archive}, {MEMBER}, line {number}: {len(row)} columns, expected {expected}")
        rows.append(row)
    return rows


def clean(rows: list[Row]) -> list[Row]:
    """Returns the rows without zero-width characters, empty sides and repeated pairs."""
    kept: dict[Row, Row] = {}
    for row in rows:
        row = tuple(map(strip, row))
        if row[0] and row[1]:
            kept.setdefault(row[:2], row)
    return list(kept.values())


def attribution(source: str, seed: int) -> str:
    return (
        "# Tatoeba sentence pairs, English and German\n\n"
        "The sentences are by the contributors of https://tatoeba.org, chosen and paired by "
        "https://www.manythings.org/anki, and licensed CC-BY 2.0 FR (https://creativecommons.org/licenses/by/2.0/fr/).\n"
        "Column 3, where there is one, names both sentences' numbers and authors; else "
        "https://tatoeba.org finds a sentence's author by its text.\n\n"
        f"Source: {source}.\nChanges: zero-width characters removed, repeated pairs dropped, split with seed {seed}.\n"
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, ValueError) as problem:
        sys.exit(f"get_tatoeba_en_de: {problem}")
