"""Which training pairs are dropped, and why. A pair is kept or dropped as a whole, and every drop is counted."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from mt.config import CleaningConfig

# Anything but white space, control and zero-width characters, the soft hyphen and U+3164: something that can be seen.
_VISIBLE = re.compile("[^\\s\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\u3164\ufeff]")
_RATIO_CHARACTERS = 20  # shorter texts have no meaningful length ratio


def clean_pairs(
    pairs: Iterable[tuple[str, str]], config: CleaningConfig, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yields the pairs that pass, unchanged and in order; adds each dropped pair to `counts` under its first reason.

    The reasons are "empty source", "empty target", "too many characters", "length ratio", "identical" and "duplicate"
    ("too many tokens" follows after tokenising). Duplicates are found by 64-bit hashes, 8 bytes plus overhead a pair.
    """
    seen: set[int] = set()
    for source, target in pairs:
        reason = _drop_reason(source, target, config)
        if reason is None and config.drop_duplicates:
            digest = hashlib.blake2b(f"{source}\n{target}".encode(errors="surrogatepass"), digest_size=8).digest()
            key = int.from_bytes(digest)
            reason = "duplicate" if key in seen else None
            seen.add(key)
        if reason is None:
            yield source, target
        else:
            counts[reason] += 1


def is_empty(text: str) -> bool:
    """Returns whether nothing in the text can be seen: white space, zero-width and control characters only."""
    return _VISIBLE.search(text) is None


def _drop_reason(source: str, target: str, config: CleaningConfig) -> str | None:
    if is_empty(source):
        return "empty source"
    if is_empty(target):
        return "empty target"
    if max(len(source), len(target)) > config.max_characters:
        return "too many characters"
    shorter, longer = sorted((len(source.strip()), len(target.strip())))
    if config.max_length_ratio and longer >= _RATIO_CHARACTERS and longer > config.max_length_ratio * shorter:
        return "length ratio"
    if config.drop_identical and source.strip() == target.strip():
        return "identical"
    return None
