"""Memory does not grow with a file, whatever its format."""

import gzip
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

ROOT = Path(__file__).parents[2]
FEW, MANY = 20_000, 400_000  # pairs; the text of many takes about 130 MB
LIMIT_MB = 60  # what is read at once, and what the allocator keeps of it

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc/PID/status"),
]

READ = """
import resource, sys
from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, read_corpus
config = CorpusConfig(path=sys.argv[1])
check_corpus(config, DataConfig(), "data.train.main")
count = sum(1 for _ in read_corpus(config, DataConfig(), "data.train.main"))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def pair(i: int) -> tuple[str, str]:
    return f"red tea number {i} " * 8, f"红茶 {i} " * 8


def write(path: Path, count: int) -> Path:
    """Writes so many pairs in the format of the path's suffix, a few at a time."""
    kind = path.name.partition(".")[2]
    if kind == "parquet" or kind == "arrow":
        schema = pa.schema([("en", pa.string()), ("zh", pa.string())])
        new = pyarrow.parquet.ParquetWriter if kind == "parquet" else pa.ipc.new_stream
        with new(path, schema) as writer:
            for start in range(0, count, 10_000):
                rows = [dict(zip(("en", "zh"), pair(i), strict=True)) for i in range(start, start + 10_000)]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        return path
    head, one, end = {
        "csv": ("en,zh\n", '"{}","{}"\n', ""),
        "jsonl": ("", '{{"en": "{}", "zh": "{}"}}\n', ""),
        "tmx": (
            "<tmx><body>",
            '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="zh"><seg>{}</seg></tuv></tu>\n',
            "</body></tmx>",
        ),
        "xlf": (
            '<xliff version="1.2"><file source-language="en" target-language="zh"><body><group>',
            "<trans-unit><source>{}</source><target>{}</target></trans-unit>\n",
            "</group></body></file></xliff>",
        ),
        "xliff": (
            '<xliff version="2.0" srcLang="en" trgLang="zh"><file>',
            "<unit><segment><source>{}</source><target>{}</target></segment></unit>\n",
            "</file></xliff>",
        ),
        "po": ('msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8"\n\n', 'msgid "{}"\nmsgstr "{}"\n\n', ""),
        "tsv.gz": ("", "{}\t{}\n", ""),
        "zip": ("", "{}\t{}\n", ""),
    }[kind]

    def parts():
        yield head
        for i in range(count):
            yield one.format(*pair(i))
        yield end

    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("t.tsv", "w") as member:
            member.writelines(part.encode() for part in parts())
        return path
    with gzip.open(path, "wb") if kind == "tsv.gz" else path.open("wb") as file:
        file.writelines(part.encode() for part in parts())
    return path


def peak_mb(path: Path, count: int) -> float:
    """Returns the most memory of a process that checks and reads the corpus, in MB."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    found = subprocess.run([sys.executable, "-c", READ, path], env=environment, stdout=subprocess.PIPE, check=True)
    pairs, peak = json.loads(f"[{found.stdout.decode().replace(' ', ',')}]")
    assert pairs == count
    return peak


@pytest.mark.parametrize("kind", ["csv", "jsonl", "tmx", "xlf", "xliff", "po", "tsv.gz", "zip", "parquet", "arrow"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind: str) -> None:
    few, many = (peak_mb(write(tmp_path / f"{count}.{kind}", count), count) for count in (FEW, MANY))
    print(f"{kind}: {FEW} pairs {few:.0f} MB, {MANY} pairs {many:.0f} MB")
    assert many < few + LIMIT_MB
