"""Which suffix has which reader: reader(file, name, sides) yields the pairs of an open file; `name` is for messages."""

import functools

from mt.data.readers.archive import archive_pairs
from mt.data.readers.arrow import arrow_pairs, parquet_pairs
from mt.data.readers.comma import csv_pairs
from mt.data.readers.gettext import mo_pairs, po_pairs
from mt.data.readers.jsonl import jsonl_pairs
from mt.data.readers.tmx import tmx_pairs
from mt.data.readers.tsv import tsv_pairs
from mt.data.readers.xliff import xliff_pairs
from mt.data.sides import Reader

# Read from the beginning to the end, so that they may be compressed, or in an archive.
STREAMED: dict[str, Reader] = {
    ".tsv": tsv_pairs,
    ".csv": csv_pairs,
    ".jsonl": jsonl_pairs,
    ".tmx": tmx_pairs,
    ".xlf": xliff_pairs,
    ".xliff": xliff_pairs,
    ".po": po_pairs,
}
SEEKING: dict[str, Reader] = {
    ".mo": mo_pairs,
    ".parquet": parquet_pairs,
    ".arrow": arrow_pairs,
    ".feather": arrow_pairs,
    ".zip": functools.partial(archive_pairs, readers=STREAMED),
}
