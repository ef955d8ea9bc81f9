"""Zip archives: two texts named by language (Moses, OPUS), files of a known format, or ManyThings' (Anki) sentences."""

import dataclasses
import io
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO

from mt.data.files import reason, suffixes, text_lines
from mt.data.readers.text import line_pairs
from mt.data.readers.tsv import tsv_pairs
from mt.data.sides import Pair, Reader, Sides, fitting_language, shown

_PACKED = (".zip", ".tar", ".tgz", ".bz2", ".7z", ".rar", ".parquet", ".arrow", ".feather", ".mo")
_NO_TEXTS = ("_", ".", "readme", "license", "licence")  # how names of files begin that are no sentences


def archive_pairs(file: BinaryIO, name: str, sides: Sides, readers: dict[str, Reader]) -> Iterator[Pair]:
    """Yields the pairs of an archive, whose members are unpacked while they are read.

    They are, whichever comes first: two members that end in the languages' codes, such as x.de-en.de and x.de-en.en;
    all members whose suffix has a reader, by name; the one other member ending in .txt, with English in its first
    column. Raises ValueError where there is none of these, and for a damaged or encrypted archive.
    """
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise ValueError(f"{name}: is no zip archive that can be read ({reason(error)})") from error
    with archive:
        # a folder ends in /; is_dir() would fail where a damaged archive has a member without a name
        names = sorted(member for member in archive.namelist() if member and not member.endswith("/"))
        names = [member for member in names if not PurePosixPath(member).name.lower().startswith(_NO_TEXTS)]
        twice = [member for member, following in zip(names, names[1:], strict=False) if member == following]
        if twice:
            raise ValueError(f"{name}: holds more than one member {shown(twice)}: unpack it, and name them apart")
        two = _two_texts(names, name, sides)
        known = [member for member in names if suffixes(member) in ((suffix, "") for suffix in readers)]
        texts = [member for member in names if suffixes(member) == (".txt", "")]
        if two is not None:
            places = [_place(name, member) for member in two]
            lines = [text_lines(_opened(archive, member, name), _place(name, member)) for member in two]
            yield from line_pairs(*lines, *places, sides.name)
        elif known:
            _check_all_are_read(names, known, name)
            for member in known:
                read = readers[suffixes(member)[0]]
                yield from read(_opened(archive, member, name), _place(name, member), sides)
        elif len(texts) == 1:
            _check_all_are_read(names, texts, name)
            yield from tsv_pairs(_opened(archive, texts[0], name), _place(name, texts[0]), _english_first(sides))
        else:
            source, target = sides.fields
            raise ValueError(
                f"{name}: holds neither two texts that end in .{source} and .{target}, nor files of a known format "
                f"({', '.join(readers)}), nor one .txt; there is {shown(names)}"
            )


def _check_all_are_read(names: list[str], read: list[str], name: str) -> None:
    """Raises ValueError where a member that holds pairs as well, by its name, would be passed over."""
    for member in names:
        suffix, compression = suffixes(member)
        if member not in read and (compression or suffix in _PACKED):
            raise ValueError(
                f"{_place(name, member)}: is packed itself, or of a format that is not read in archives: unpack it, or "
                "take it out"
            )


def _two_texts(names: list[str], name: str, sides: Sides) -> tuple[str, str] | None:
    endings: dict[str, list[str]] = {}
    for member in names:
        endings.setdefault(PurePosixPath(member).suffix.removeprefix("."), []).append(member)
    source, target = (fitting_language(endings, wanted) for wanted in sides.fields)
    if source is None or target is None or source == target:
        return None
    for ending in (source, target):
        if len(endings[ending]) > 1:
            raise ValueError(f"{name}: more than one member ends in .{ending}: {shown(endings[ending])}: unpack it")
    return endings[source][0], endings[target][0]


def _english_first(sides: Sides) -> Sides:
    """Returns the sides with the columns of a file of ManyThings: English, the other language, attribution."""
    if sides.source_field is not None or sides.target_field is not None:
        return sides
    for columns, language in ((("0", "1"), sides.source_language), (("1", "0"), sides.target_language)):
        if fitting_language([language], "en") is not None:
            return dataclasses.replace(sides, source_field=columns[0], target_field=columns[1])
    raise ValueError(
        f"{sides.name}: the first column of a .txt in an archive is taken for English, but neither language is: set "
        ".source_field and .target_field to the columns' numbers from 0"
    )


def _place(name: str, member: str) -> str:
    return f"{name}, {shown([member])}"


def _opened(archive: zipfile.ZipFile, member: str, name: str) -> BinaryIO:
    try:
        return io.BufferedReader(archive.open(member))
    except (zipfile.BadZipFile, RuntimeError, ValueError) as error:  # RuntimeError: encrypted, or packed another way
        raise ValueError(f"{_place(name, member)}: cannot be unpacked ({reason(error)})") from error
