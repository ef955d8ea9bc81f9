"""Which training pairs are dropped, and why. A pair is kept or dropped as a whole, and every drop is counted."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from mt.config import CleaningConfig

# Anything but white space, controls, lone surrogates and what Unicode calls default ignorable (zero-width characters,
# directions, fillers, variation selectors, tags): something that can be seen.
_VISIBLE = re.compile(
    "[^\\s\x00-\x1f\x7f-\x9f\ud800-\udfff\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_RATIO_CHARACTERS = 20  # shorter texts have no meaningful length ratio


def clean_pairs(
    pairs: Iterable[tuple[str, str]], config: CleaningConfig, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Yields the pairs that pass, unchanged and in order; adds each dropped pair to `counts` under its first reason.

    The reasons are "empty source", "empty target", "too many source characters", "too many target characters", "length
    ratio", "identical" and "duplicate" (what has too many tokens is found after tokenising). Duplicates are found by
    64-bit hashes, 8 bytes plus overhead a pair.
    """
    seen: set[int] = set()
    for source, target in pairs:
        reason = _drop_reason(source, target, config)
        if reason is None and config.drop_duplicates:
            content = f"{len(source)} {source}{target}".encode(errors="surrogatepass")  # the length: where source ends
            key = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())
            reason = "duplicate" if key in seen else None
            seen.add(key)
        if reason is None:
            yield source, target
        else:
            counts[reason] += 1


def nothing_left(split: str, counts: Counter[str]) -> str:
    """Returns the message that cleaning left no pair of a split, with what was dropped."""
    dropped = ", ".join(f"{reason}: {count}" for reason, count in counts.most_common())
    return f"data.{split}: no pair is left after data.cleaning (dropped {dropped or 'none'})"


def is_empty(text: str) -> bool:
    """Returns whether nothing in the text can be seen: white space, control and default ignorable characters only."""
    return not "!" <= text[:1] <= "~" and _VISIBLE.search(text) is None  # a search takes five times as long


def _drop_reason(source: str, target: str, config: CleaningConfig) -> str | None:
    if is_empty(source):
        return "empty source"
    if is_empty(target):
        return "empty target"
    if len(source) > config.max_characters:
        return "too many source characters"
    if len(target) > config.max_characters:
        return "too many target characters"
    if config.max_length_ratio:
        shorter, longer = len(source.strip()), len(target.strip())
        if shorter > longer:
            shorter, longer = longer, shorter
        if longer >= _RATIO_CHARACTERS and longer > config.max_length_ratio * shorter:
            return "length ratio"
    if config.drop_identical and source.strip() == target.strip():
        return "identical"
    return None
