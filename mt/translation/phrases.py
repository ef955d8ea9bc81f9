"""Texts as all the ways to spell them in pieces: what a search needs to hold a translation to a text."""

from collections.abc import Sequence
from dataclasses import dataclass

from mt.documents.sentences import WITHOUT_SPACES, primary_language
from mt.tokenizer import Tokenizer


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
        self.glues = [
            spaced and piece.decode("utf-8", errors="ignore")[:1].isalnum() for piece in tokenizer.piece_bytes
        ]

    def phrase(self, text: str) -> Phrase:
        """Returns the phrase of a text. Raises ValueError as `written` does."""
        content = self.written(text).strip()
        starts = [(token, end - 1) for token, end in self._steps(b" " + content, 0)]
        if not self.spaced:  # a word may begin anywhere; a space alone is no beginning
            starts = [step for step in starts if step[1]] + self._steps(content, 0)
        continuations = {offset: tuple(self._steps(content, offset)) for offset in range(len(content))}
        assert starts, "bytes have pieces"
        return Phrase(content, tuple(starts), continuations)

    def prefix(self, text: str) -> tuple[list[int], list[int]]:
        """Returns the tokens that a translation beginning with this text begins with, and the choice for the next one.

        The last piece of a text may go on in a longer one, so it is left to choose among all that begin with it.
        """
        ids = self.tokenizer.encode([text])[0] if text else []
        if not ids:
            return [], []
        last = self.tokenizer.piece_bytes[ids[-1]]
        choice = {token for piece, tokens in self.by_bytes.items() if piece.startswith(last) for token in tokens}
        return ids[:-1], sorted(choice | {ids[-1]})

    def written(self, text: str) -> bytes:
        """Returns the bytes that a text has in a translation, with the space before its first word if there is one.

        Raises ValueError where nothing is written.
        """
        content = self.tokenizer.decode(self.tokenizer.encode([text])[0]).strip().encode()
        if not content:
            raise ValueError(f"{text!r}: no pieces of the target tokenizer write this text")
        return b" " + content if self.spaced else content

    def _steps(self, content: bytes, offset: int) -> list[tuple[int, int]]:
        ends = range(offset + 1, min(offset + self.longest, len(content)) + 1)
        return [(token, end) for end in ends for token in self.by_bytes.get(content[offset:end], [])]


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
