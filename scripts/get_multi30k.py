"""Fetches Multi30k, English-German image captions, and writes data/multi30k/*.gz: raw and lower-cased, tokenised text.

29,000 pairs to train on, 1,014 to validate and 1,000 to test (test_2016_flickr), one sentence a line. The repository
states no licence; its authors ask to be cited (Elliott, Frank, Sima'an and Specia 2016, "Multi30K: Multilingual
English-German Image Descriptions"). The checksums are those of the text at commit a3d2e0d; the address itself has not
been tried yet. --from takes another one, or a clone's folder data/task1.
"""

import argparse
import gzip
import hashlib
import http.client
import os
import sys
import urllib.request
import zlib
from pathlib import Path

REPOSITORY = "https://github.com/multi30k/dataset/raw/a3d2e0d/data/task1"
TEXT_SHA256 = {  # of the text, not of its compressed form
    "raw/train.en.gz": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "raw/train.de.gz": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "raw/val.en.gz": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "raw/val.de.gz": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "raw/test_2016_flickr.en.gz": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "raw/test_2016_flickr.de.gz": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "tok/train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    "tok/train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    "tok/val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    "tok/val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "tok/test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "tok/test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
}


def main(argv: list[str]) -> None:
    """Writes the files that are missing. Raises ValueError in one line where one cannot be had as it should be."""
    parser = argparse.ArgumentParser(description="Fetch Multi30k (English-German), raw and tokenised.")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "data" / "multi30k")
    parser.add_argument("--from", dest="place", default=REPOSITORY, help="an address or a folder that holds raw/, tok/")
    arguments = parser.parse_args(argv)
    place = Path(arguments.place).resolve().as_uri() if Path(arguments.place).is_dir() else arguments.place
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, checksum in TEXT_SHA256.items():
        file = arguments.output / Path(name).name.removesuffix(".gz")
        write(file.with_name(f"{file.name}.gz"), f"{place}/{name}", checksum)
    print(f"{arguments.output}: {len(TEXT_SHA256)} files, complete", file=sys.stderr)


def write(file: Path, url: str, checksum: str) -> None:
    """Writes the text at the address as a .gz file, or nothing where the file holds it already."""
    if file.exists():
        if text_sha256(file.read_bytes(), str(file)) != checksum:
            raise ValueError(f"{file}: is not the file of this corpus: move it away to fetch again")
        return
    content = fetch(url)
    compressed = content if url.endswith(".gz") else gzip.compress(content, mtime=0)
    found = text_sha256(compressed, url)
    if found != checksum:
        raise ValueError(f"{url}: sha256 of the text is {found}, expected {checksum}")
    temporary = file.with_name(f".tmp-{file.name}")
    temporary.write_bytes(compressed)
    os.replace(temporary, file)


def fetch(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.read()
    except (OSError, http.client.HTTPException) as error:  # URLError is an OSError; the other: cut off
        raise ValueError(f"{url}: {error}; --from takes another address or a folder") from error


def text_sha256(compressed: bytes, name: str) -> str:
    """Returns the checksum of the text in a .gz file."""
    try:
        return hashlib.sha256(gzip.decompress(compressed)).hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{name}: is no whole gzip file ({error})") from error


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, ValueError) as problem:
        sys.exit(f"get_multi30k: {problem}")
