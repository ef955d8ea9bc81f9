"""What the page shows of a translation: its words, how sure the model is of each, and what each looked at."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from mt.data.tags import tag_ids
from mt.translation.phrases import spaced
from mt.translation.translator import Translator


@dataclass(frozen=True)
class Word:
    """A word, or a mark: its place in the text, and its pieces."""

    start: int
    end: int
    pieces: tuple[int, ...]  # their numbers in the text


def find_words(text: str, spans: list[tuple[int, int]], language: str) -> list[Word]:
    """Returns the words of a text, of whose pieces the places are given; white space belongs to none.

    In a language with spaces between words a word goes from space to space, less the marks at its ends; in another one
    each piece is a word, but letters of ASCII stay together.
    """
    words: list[Word] = []
    has_spaces = spaced(language)
    pending: list[int] = []  # bytes of a character that is not complete, and spaces
    glued, end = False, 0  # whether the next piece may belong to the last word, which ends there
    for piece, (begin, stop) in enumerate(spans):
        own = text[begin:stop]
        core = own.strip()
        if not core:
            pending.append(piece)
            glued = glued and not own
            continue
        start = begin + len(own) - len(own.lstrip())
        is_word = any(character.isalnum() for character in core)
        joins = glued and is_word and start == end
        if joins and (has_spaces or (text[start - 1] + core[0]).isascii()):
            words[-1] = Word(words[-1].start, start + len(core), (*words[-1].pieces, *pending, piece))
        else:
            words.append(Word(start, start + len(core), (*pending, piece)))
        pending, end = [], start + len(core)
        glued = is_word and end == stop
    return words


def explain(translator: Translator, languages: tuple[str, str], source: str, translation: str) -> dict[str, Any]:
    """Returns the words of a sentence and of its translation, as an answer of the server.

    {"source": [{start, end}], "target": [{start, end, probability, attention}]}: probability is that of the word's
    least likely piece, attention has a share for each word of the source; what is missing to 1 went to the end of the
    sentence, or to what is in no word.
    """
    tokenizers = translator.tokenizers
    ids = tokenizers.target.encode([translation])[0]
    source_words = find_words(source, tokenizers.source.spans(source), languages[0])
    target_words = find_words(translation, tokenizers.target.spans(translation), languages[1])
    view = translator.force(translator.sources([source]), [ids])[0]
    if view is None:
        return {"source": [], "target": []}
    tags = tag_ids(translator.decode.tags, tokenizers.source)  # which the text does not have
    rows = view.attention[:, len(tags) :].tolist()
    target = []
    for word in target_words:
        own = [piece for piece in word.pieces if piece < len(rows) - 1]  # what is too long was not read
        target.append(
            {
                "start": word.start,
                "end": word.end,
                "probability": math.exp(min((view.log_probs[piece] for piece in own), default=0.0)),
                "attention": [
                    sum(sum(rows[piece][i] for i in seen.pieces if i < len(rows[piece])) for piece in own)
                    / max(len(own), 1)
                    for seen in source_words
                ],
            }
        )
    return {"source": [{"start": word.start, "end": word.end} for word in source_words], "target": target}


def answer(alternatives: list[Any]) -> list[dict[str, Any]]:
    """Returns alternatives as an answer of the server."""
    return [asdict(alternative) for alternative in alternatives]
