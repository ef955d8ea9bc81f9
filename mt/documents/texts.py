"""From the texts of a document to their translations, sentence by sentence."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mt.documents.protection import (
    Code,
    Text,
    Translate,
    has_words,
    mask_placeholders,
    merged,
    plain,
    translate_protected,
)
from mt.documents.sentences import space_between, split_sentences

_LINE_START = re.compile("(?<=\n)")


@dataclass(frozen=True)
class TextTranslator:
    """Translates texts with line breaks, mark-up and placeholders by a function that knows sentences only."""

    source_language: str
    target_language: str
    translate: Translate  # returns one string for each, in order
    split: bool = True  # into sentences; else each line is one
    protect: bool = True  # placeholders; what has no letter is left alone then

    def __call__(self, texts: list[Text]) -> list[Text]:
        """Returns as many texts as are given, in order, with the codes of each, its line breaks and its blank ends.

        Equal sentences are translated once. A text without codes has one string, or none.
        """
        cut = [[_Sentence.of(part) for part in self._parts(text)] for text in texts]
        wanted = {s.core: s.core for sentences in cut for s in sentences if self._is_wanted(s.core)}
        translations = dict(zip(wanted, self._translated([list(core) for core in wanted]), strict=True))
        return [self._joined(sentences, translations) for sentences in cut]

    def strings(self, texts: list[str]) -> list[str]:
        """Returns the translations of texts without codes."""
        return [plain(text) for text in self([[text] for text in texts])]

    def pairs(self, text: str) -> Iterator[tuple[str, str]]:
        """Yields the sentences of a text and their translations, as they come: one, then two, then four together.

        White space stands in front. Joined, they are the text and `strings([text])[0]`.
        """
        sentences = [_Sentence.of(part) for part in self._parts([text])]
        translations: dict[tuple[str | Code, ...], Text] = {}
        tail = before = ""  # what stands behind the last sentence, and its translation
        start, count = 0, 1
        while start < len(sentences):
            group = sentences[start : start + count]
            wanted = dict.fromkeys(s.core for s in group if s.core not in translations and self._is_wanted(s.core))
            translations.update(zip(wanted, self._translated([list(core) for core in wanted]), strict=True))
            for sentence in group:
                head, core = plain(sentence.head), plain(list(sentence.core))
                found = plain(translations.get(sentence.core, list(sentence.core)))
                yield tail + head + core, self._space(before, tail, found) + head + found
                tail, before = plain(sentence.tail), found
            start, count = start + count, 2 * count
        if tail:
            yield tail, tail

    def _translated(self, cores: list[Text]) -> list[Text]:
        if self.protect:
            return translate_protected(cores, self.translate, self._space)
        found = self.translate([plain(core) for core in cores]) if cores else []
        return [[text] for text in found]

    def _space(self, before: str, space: str, after: str) -> str:
        return space_between(before, space, after, self.source_language, self.target_language)

    def _parts(self, text: Text) -> Iterator[Text]:
        """Yields the sentences of a text, each with the white space behind it; joined, they are the text."""
        whole = mask_placeholders(plain(text)) if self.protect else plain(text)
        lengths = [
            len(sentence)
            for line in _LINE_START.split(whole)
            for sentence in (split_sentences(line, self.source_language) if self.split else [line])
        ]
        rest, offset = list(reversed(text)), 0  # characters of the first string of the rest that are taken
        for length in lengths:
            part: Text = []
            while rest and length:
                first = rest[-1]
                if isinstance(first, Code):
                    part.append(rest.pop())
                    continue
                taken = first[offset : offset + length]
                part.append(taken)
                length -= len(taken)
                offset += len(taken)
                if offset == len(first):
                    rest.pop()
                    offset = 0
            yield part
        if rest:
            yield list(reversed(rest))  # codes at the end

    def _is_wanted(self, core: tuple[str | Code, ...]) -> bool:
        if not self.protect:
            return bool(plain(list(core)))
        return any(has_words(part) for part in core if isinstance(part, str))

    def _joined(self, sentences: list["_Sentence"], translations: dict[tuple[str | Code, ...], Text]) -> Text:
        cores = [translations.get(sentence.core, list(sentence.core)) for sentence in sentences]
        joined: Text = []
        for sentence, core, after in zip(sentences, cores, [*cores[1:], []], strict=False):  # both may be empty
            space = plain(sentence.tail)
            new = self._space(plain(core), space, plain(after))
            tail = sentence.tail if new == space else [part for part in sentence.tail if isinstance(part, Code)] + [new]
            joined += [*sentence.head, *core, *tail]
        return merged(joined)


@dataclass(frozen=True)
class _Sentence:
    """A sentence between what is not translated at its ends: codes and white space."""

    head: Text
    core: tuple[str | Code, ...]
    tail: Text

    @staticmethod
    def of(part: Text) -> "_Sentence":
        pieces: Text = [piece for item in part for piece in _without_ends(item)]
        words = [index for index, piece in enumerate(pieces) if isinstance(piece, str) and piece.strip()]
        if not words:
            return _Sentence(pieces, (), [])
        start, end = words[0], words[-1] + 1
        return _Sentence(pieces[:start], tuple(merged(pieces[start:end])), pieces[end:])


def _without_ends(part: str | Code) -> Text:
    """Returns a string in three: white space, words, white space."""
    if isinstance(part, Code):
        return [part]
    core = part.strip()
    start = len(part) - len(part.lstrip())
    return [piece for piece in (part[:start], core, part[start + len(core) :]) if piece]
