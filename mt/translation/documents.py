"""Long and formatted input through a trained model: documents of every format, and text lines of several sentences."""

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import BinaryIO

from mt.documents.formats import translate_document
from mt.documents.sentences import cut_long, space_between
from mt.documents.tables import Fields
from mt.documents.texts import TextTranslator
from mt.translation.lines import LineTranslator
from mt.translation.output import open_output

_SHOWN_CHARACTERS, _SENTENCES_SHOWN = 40, 10  # in a warning


def translate_file(
    format: str,
    file: BinaryIO,
    name: str,
    output: Path | None,
    languages: tuple[str, str],
    load: Callable[[], LineTranslator],
    split: bool = True,
    protect: bool = True,
    field: str | None = None,
    new_field: str | None = None,
) -> None:
    """Writes the translation of a document in its own format to output, or to standard output; `name` is in messages.

    languages: of source and target. `load` is called where there is something to translate: what is wrong with the
    document mostly shows before. `split` cuts texts into sentences, `protect` keeps placeholders; `field` of a table
    (default: the source language, of TSV the first column) is translated into `new_field` (the target language).
    Raises ValueError for a wrong document.
    """
    fields = Fields(field or ("0" if format == "tsv" else languages[0]), new_field or languages[1])

    @cache
    def loaded() -> Callable[[list[str]], list[str]]:
        return sentence_translator(load(), *languages)

    def translate(sentences: list[str]) -> list[str]:
        return loaded()(sentences) if sentences else []

    texts = TextTranslator(*languages, translate, split, protect)
    with open_output(output) as out:
        for part in translate_document(format, file, name, texts, fields):
            out.write(part)


def sentence_translator(
    translator: LineTranslator, source_language: str, target_language: str
) -> Callable[[list[str]], list[str]]:
    """Returns a function from sentences to their translations, which cuts what is too long instead of leaving it out.

    A sentence of more than decode.max_source_tokens tokens is translated in parts, and a warning tells so.
    """
    limit = translator.decode.max_source_tokens

    def translate(sentences: list[str]) -> list[str]:
        lengths = translator.count_tokens(sentences)
        parts = [
            cut_long(sentence, limit, translator.count_tokens) if length > limit else [sentence]
            for sentence, length in zip(sentences, lengths, strict=True)
        ]
        flat = [part for of_sentence in parts for part in of_sentence]
        results = iter(translator.translate_n_best(flat, 1, names=[_name(part) for part in flat]))
        _warn(limit, [(s, length) for s, length in zip(sentences, lengths, strict=True) if length > limit])
        return [joined(of_sentence, [next(results)[0].text for _ in of_sentence]) for of_sentence in parts]

    def joined(sources: list[str], texts: list[str]) -> str:
        result = texts[0]
        for before, after, text in zip(sources, sources[1:], texts[1:], strict=False):  # one pair less than parts
            space = before[len(before.rstrip()) :] + after[: len(after) - len(after.lstrip())]
            result += space_between(result, space, text, source_language, target_language) + text
        return result

    return translate


def _warn(limit: int, cut: list[tuple[str, int]]) -> None:
    if cut:
        shown = ", ".join(f"{_name(sentence)} ({length} tokens)" for sentence, length in cut[:_SENTENCES_SHOWN])
        more = f" and {len(cut) - _SENTENCES_SHOWN} more" if len(cut) > _SENTENCES_SHOWN else ""
        warnings.warn(
            f"longer than decode.max_source_tokens={limit} tokens, translated in parts: {shown}{more}", stacklevel=4
        )


def _name(sentence: str) -> str:
    """Returns how a sentence is named in a warning."""
    start = " ".join(sentence[: 2 * _SHOWN_CHARACTERS].split())
    return f'"{start[:_SHOWN_CHARACTERS]}{"..." if len(start) > _SHOWN_CHARACTERS else ""}"'
