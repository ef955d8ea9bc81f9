"""Texts as all the ways to spell them in pieces: what a search needs to hold a translation to a text."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from mt.languages import WITHOUT_SPACES, primary_language
from mt.tokenizer import Tokenizer

_NO_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


LONGEST_PHRASE_TOKENS = 40  # the time of a search grows with a phrase, most of all where nothing else fits it


def in_word(character: str) -> bool:
    """Returns whether a character is a letter, a digit, or a mark on one, of a script with spaces between words."""
    letter = character.isalnum() or unicodedata.category(character).startswith("M")
    return letter and not _NO_SPACES.match(character)


@dataclass(frozen=True)
class Phrase:
    """A text that a translation must hold. A step is (token, bytes of the text that are written after it)."""

    text: bytes
    starts: tuple[tuple[int, int], ...]
    continuations: dict[int, tuple[tuple[int, int], ...]]  # by the bytes written so far


class Speller:
    """The pieces of one tokenizer, found by the bytes that they write.

    spaced: the language puts spaces between words, so a phrase begins after one, and no letter follows it at once.
    """

    def __init__(self, tokenizer: Tokenizer, spaced: bool) -> None:
        self.tokenizer, self.spaced = tokenizer, spaced
        self.by_bytes: dict[bytes, list[int]] = {}
        for token, piece in enumerate(tokenizer.piece_bytes):
            if piece:
                self.by_bytes.setdefault(piece, []).append(token)
        self.longest = max(map(len, self.by_bytes), default=0)
        self.glues = [spaced and _goes_on(piece) for piece in tokenizer.piece_bytes]

    def phrases(self, texts: Sequence[str]) -> list[Phrase]:
        """Returns the phrases of texts, each once.

        Without spaces one text may stand inside a piece of another, where a search would not find it, so that only the
        longer one is left; with spaces it is found.
        """
        return [self.phrase(text) for text in (dict.fromkeys(texts) if self.spaced else longest_first(texts))]

    def phrase(self, text: str) -> Phrase:
        """Returns the phrase of a text. Raises ValueError as `written` does, and for one that is no term any more."""
        if (count := len(self.tokenizer.encode([text])[0])) > LONGEST_PHRASE_TOKENS:
            shown = text if len(text) <= 40 else f"{text[:40]}..."
            raise ValueError(
                f"{shown!r}: has {count} tokens; of a phrase or a glossary's term the most is {LONGEST_PHRASE_TOKENS}"
            )
        content = self.written(text)
        starts = [(token, end - 1) for token, end in self._steps(b" " + content, 0)]
        if not self.spaced:  # a word may begin anywhere; a space alone is no beginning
            starts = [step for step in starts if step[1]] + self._steps(content, 0)
        continuations = {offset: tuple(self._steps(content, offset)) for offset in range(len(content))}
        assert starts, "bytes have pieces"
        return Phrase(content, tuple(starts), continuations)

    def prefix(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the tokens of a text that a translation begins with, and those that may stand in for the last one.

        The end of a text may be the beginning of a longer piece; the tokens of all such pieces are the second list.
        """
        ids = self.tokenizer.encode([text])[0] if text else []
        if not ids:
            return [], []
        last = self.tokenizer.piece_bytes[ids[-1]]
        longer = {token for piece, tokens in self.by_bytes.items() if piece.startswith(last) for token in tokens}
        return ids, sorted(longer - {ids[-1]})

    def written(self, text: str) -> bytes:
        """Returns the bytes that a text has in a translation. Raises ValueError where nothing is written."""
        content = self.tokenizer.decode(self.tokenizer.encode([text])[0]).strip().encode()
        if not content:
            raise ValueError(f"{text!r}: no pieces of the target tokenizer write this text: leave it out")
        return content

    def _steps(self, content: bytes, offset: int) -> list[tuple[int, int]]:
        ends = range(offset + 1, min(offset + self.longest, len(content)) + 1)
        return [(token, end) for end in ends for token in self.by_bytes.get(content[offset:end], [])]


def _goes_on(piece: bytes) -> bool:
    """Returns whether what a piece writes may go on with a word: a part of a character may be that of a letter."""
    first = piece.decode("utf-8", errors="ignore")[:1]
    return in_word(first) if first else piece != b""


def spaced(language: str) -> bool:
    """Returns whether a language (its code, such as en or zh_TW) puts spaces between words."""
    return primary_language(language) not in WITHOUT_SPACES | {"th", "lo", "km", "my", "bo"}


def longest_first(phrases: Sequence[str]) -> list[str]:
    """Returns the phrases without those that another one holds: writing that one writes both."""
    kept: list[str] = []
    for phrase in sorted(dict.fromkeys(phrases), key=len, reverse=True):
        if not any(phrase in other for other in kept):
            kept.append(phrase)
    return kept
