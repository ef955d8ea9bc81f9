"""Which pairs came before: by 64-bit hashes in little memory; and which stand in validation or test, by their texts."""

import unicodedata
from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

from mt.config import DataConfig
from mt.data.corpus import read_corpora
from mt.data.filters import Filter, is_empty

HELD_OUT = ("valid", "test")


class _Kept(dict[int, int | None]):
    """For str.translate: leaves out punctuation, spaces and what cannot be seen; letters, marks and symbols stay."""

    def __missing__(self, code: int) -> int | None:
        self[code] = None if unicodedata.category(chr(code))[0] in "PZC" else code
        return self[code]


_KEPT = _Kept()  # grows to one entry for each character that occurs


# For texts of the first 256 characters, of which NFKC changes some; casefold of the others is lower case, but for ß.
_LATIN = [chr(code) for code in range(256)]
_NOT_PLAIN = "".join(c for c in _LATIN if unicodedata.normalize("NFKC", c) != c).encode("latin-1")
_LEFT_OUT = "".join(c for c in _LATIN if _KEPT[ord(c)] is None).encode("latin-1")
_LOWER = bytes(ord(c.lower()) if c.lower() in _LATIN else ord(c) for c in _LATIN)


def normal_form(text: str) -> str:
    """Returns what texts share that differ in case, punctuation, spaces and forms of characters (NFKC) only.

    A text of nothing but punctuation stays as it is, without the white space around it.
    """
    try:
        short = text.encode("latin-1")
    except UnicodeEncodeError:
        short = b""
    if short and short == short.translate(None, _NOT_PLAIN):  # most text in Latin letters, in a fifth of the time
        return short.translate(_LOWER, _LEFT_OUT).replace(b"\xdf", b"ss").decode("latin-1") or text.strip()
    text = unicodedata.normalize("NFKC", text)
    return text.casefold().translate(_KEPT) or text.strip()


class Seen:
    """Keys that came before, in sorted arrays: 8 bytes for each key, for a moment at most 24 while two are merged."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []  # each more than twice as long as the next

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Returns for each key whether it came before, in this call or an earlier one: bool [keys]. keys: uint64."""
        unique, first = np.unique(keys, return_index=True)
        old = np.zeros(len(unique), dtype=bool)
        for run in self._runs:
            places = np.searchsorted(run, unique)
            old |= run[np.minimum(places, len(run) - 1)] == unique
        if not old.all():
            self._runs.append(unique[~old])
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")  # which finds that there are two sorted parts
            self._runs.append(merged)
        seen = np.ones(len(keys), dtype=bool)
        seen[first] = old
        return seen


def repeated(reason: str, form: Callable[[str], str]) -> Callable[[Sequence[tuple[str, str]]], list[str | None]]:
    """Returns the filter, of many pairs at once, of those that an earlier one equals in the form of both sides.

    Two different forms share a key with a chance of 2^-64: of 100 million pairs one is dropped wrongly in 1 of 3,700.
    """
    seen = Seen()

    def reasons(pairs: Sequence[tuple[str, str]]) -> list[str | None]:
        keys = b"".join(_key(form(source), form(target)) for source, target in pairs)
        return [reason if old else None for old in seen.add(np.frombuffer(keys, dtype="<u8")).tolist()]

    return reasons


def _key(source: str, target: str) -> bytes:
    content = f"{len(source)} {source}{target}".encode(errors="surrogatepass")  # the length: where source ends
    return blake2b(content, digest_size=8).digest()


def held_out(data: DataConfig) -> Filter:
    """Returns the filter of pairs that share what data.cleaning.drop_held_out says with validation or test.

    Texts are compared in their normal form; those of validation and test are all in memory.
    """
    sources: dict[str, str] = {}  # each with the split where it stands
    targets: dict[str, str] = {}
    pairs: dict[tuple[str, str], str] = {}
    for split in HELD_OUT:
        for source, target in read_corpora(getattr(data, split), data, split):
            forms = normal_form(source), normal_form(target)
            if data.cleaning.drop_held_out == "both_sides":
                pairs.setdefault(forms, split)
                continue
            if not is_empty(source):
                sources.setdefault(forms[0], split)
            if not is_empty(target) and data.cleaning.drop_held_out == "either_side":
                targets.setdefault(forms[1], split)

    def both_sides(source: str, target: str) -> str | None:
        split = pairs.get((normal_form(source), normal_form(target)))
        return f"pair in {split}" if split else None

    def a_side(source: str, target: str) -> str | None:
        if split := sources.get(normal_form(source)):
            return f"source in {split}"
        split = targets.get(normal_form(target)) if targets else None
        return f"target in {split}" if split else None

    return both_sides if data.cleaning.drop_held_out == "both_sides" else a_side
