"""The models of a server: each with its languages, its engine and its queue."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mt.checkpoint import is_run
from mt.config import DecodeConfig
from mt.documents.html import translate_html
from mt.documents.texts import TextTranslator
from mt.export.engine import is_export, load_decode, load_engine, load_languages
from mt.languages import primary_language
from mt.serve.details import answer, explain
from mt.serve.limits import Refused
from mt.serve.queue import BatchQueue, Options, Ticket
from mt.translation.beam import Hypothesis
from mt.translation.documents import sentence_translator
from mt.translation.glossary import Glossary
from mt.translation.lines import LineTranslator, Translation
from mt.translation.phrases import LONGEST_PHRASE_TOKENS
from mt.translation.translator import Guidance, Translator, load_translator


class ServedModel:
    """One pair of languages. `own` is our own search, which alone knows glossaries, alternatives and attention."""

    def __init__(
        self,
        name: str,
        languages: tuple[str, str],
        translator: LineTranslator,
        own: Translator | None,
        batch_sentences: int,
        wait_seconds: float,
        seen: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.name, self.languages, self.translator, self.own = name, languages, translator, own
        self.queue = BatchQueue(self._search, batch_sentences, wait_seconds, seen)

    def work(self, ticket: Ticket, options: Options, max_phrases: int) -> "Work":
        """Returns how one request translates. Raises Refused for options that this model has not."""
        if options.terms:
            translator = self.guided("glossary")
            for source, target in options.terms:
                try:
                    translator.speller.written(target)
                except ValueError as error:
                    raise Refused(400, f"glossary: {source!r}: {error}") from error
        return Work(self, ticket, options, max_phrases)

    def guided(self, what: str) -> Translator:
        """Returns our own search. Raises Refused where the model has only an exported form."""
        if self.own is None:
            raise Refused(
                400, f"{what}: the model {self.name} is an export, which cannot do this: serve the run itself"
            )
        return self.own

    def _search(self, texts: list[str], options: Options) -> list[list[Translation]]:
        """Returns the translations of sentences; for the queue's thread."""
        translator = copy.copy(self.own if options.terms and self.own is not None else self.translator)
        if options.beam_size != translator.decode.beam_size:
            translator.decode = replace(
                translator.decode,
                beam_size=options.beam_size,
                beam_groups=1,
                diversity_penalty=DecodeConfig.diversity_penalty,  # of groups, so that no other value may stand there
            )
        if options.terms and isinstance(translator, Translator):
            glossary = Glossary(dict(options.terms))
            translator.guide = lambda text: Guidance("", glossary.targets_in(text))
        return translator.translate_n_best(texts, options.n_best)


class Work:
    """What one request does, in a thread of its own. Raises CancelledError once its ticket is cancelled."""

    def __init__(self, model: ServedModel, ticket: Ticket, options: Options, max_phrases: int) -> None:
        self._model, self._ticket, self._options, self._max_phrases = model, ticket, options, max_phrases
        self._known: dict[str, list[Translation]] = {}

    def translate(self, texts: list[str], is_html: bool) -> list[list[str]]:
        """Returns 1 to n_best different translations of each text, the best first.

        The n-th one is made of the n-th best translations of its sentences.
        """
        ways = []
        for rank in range(self._options.n_best):
            translator = self._texts(rank)
            ways.append([_html(text, translator) for text in texts] if is_html else translator.strings(texts))
        return [list(dict.fromkeys(of_text)) for of_text in zip(*ways, strict=True)]

    def pairs(self, text: str) -> Iterator[tuple[str, str]]:
        """Yields the sentences of a text and their translations, as they come (see TextTranslator)."""
        return self._texts(0).pairs(text)

    def explain(self, sources: list[str], translations: list[str]) -> list[dict[str, Any]]:
        """Returns what `explain` tells of each translation."""
        own, languages = self._model.guided("details"), self._model.languages
        return [
            self._ticket.call(lambda pair=pair: explain(own, languages, *pair))
            for pair in zip(sources, translations, strict=True)
        ]

    def alternatives(self, text: str, prefix: str, count: int) -> list[dict[str, Any]]:
        """Returns up to `count` words that can follow the prefix of a translation, the likeliest first.

        Raises Refused for a prefix that is longer than any translation.
        """
        own = self._model.guided("alternatives")
        source, most = len(own.tokenizers.source.encode([text])[0]), own.decode.max_source_tokens
        if source > most:
            raise Refused(400, f"q: has {source} tokens; the most of a sentence is {most}")
        length = len(own.tokenizers.target.encode([prefix])[0])
        if length > own.longest_forced:
            raise Refused(400, f"prefix: has {length} tokens; the most is {own.longest_forced}")
        return answer(self._ticket.call(lambda: own.alternatives(text, prefix, count)))

    def _texts(self, rank: int) -> TextTranslator:
        def translate(texts: list[str]) -> list[Translation]:
            return [found[min(rank, len(found) - 1)] for found in self._found(texts)]

        queued = _Queued(self._model.translator, translate)
        return TextTranslator(*self._model.languages, sentence_translator(queued, *self._model.languages))

    def _found(self, texts: list[str]) -> list[list[Translation]]:
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        if self._options.terms:
            glossary = Glossary(dict(self._options.terms))
            tokenizer = self._model.translator.tokenizers.target
            for text in missing:
                targets = glossary.targets_in(text)
                if len(targets) > self._max_phrases:
                    raise Refused(
                        400, f"glossary: a sentence has {len(targets)} of its terms; the most is {self._max_phrases}"
                    )
                for target, ids in zip(targets, tokenizer.encode(list(targets)), strict=True):
                    if len(ids) > LONGEST_PHRASE_TOKENS:
                        raise Refused(
                            400,
                            f"glossary: {target[:40]!r} has {len(ids)} tokens; the most is {LONGEST_PHRASE_TOKENS}",
                        )
        self._known.update(zip(missing, self._ticket.translate(missing, self._options), strict=True))
        return [self._known[text] for text in texts]


class _Queued(LineTranslator):
    """An engine for whoever cuts long sentences and puts texts together: the queue does its search."""

    def __init__(self, translator: LineTranslator, translate: Callable[[list[str]], list[Translation]]) -> None:
        super().__init__(translator.tokenizers, translator.decode)
        self._translate = translate

    def search(
        self, texts: list[str], sources: list[list[int]], n_best: int
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        own = [index for index, ids in enumerate(sources) if ids]
        found = self._translate([texts[index] for index in own])
        yield own, [[Hypothesis(each.tokens, each.score, not each.unfinished)] for each in found]


class Models:
    """All models of a server. Raises ValueError where two translate the same pair of languages."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.all = list(models)
        for number, model in enumerate(self.all):
            for other in self.all[:number]:
                if model.languages == other.languages:
                    pair = " to ".join(model.languages)
                    raise ValueError(f"{other.name} and {model.name} both translate {pair}: serve one of them")

    def find(self, source: str, target: str) -> ServedModel:
        """Returns the model of a pair of codes; zh is found for zh-Hans. Raises Refused (400) where there is none."""
        for same in (str.lower, primary_language):
            for model in self.all:
                if tuple(map(same, model.languages)) == (same(source), same(target)):
                    return model
        known = {primary_language(code) for model in self.all for code in model.languages}
        for code in (source, target):
            if primary_language(code) not in known:
                raise Refused(400, f"{code} is not supported")
        pairs = ", ".join(" to ".join(model.languages) for model in self.all)
        raise Refused(400, f"{target} is not available as a target language from {source}; there are: {pairs}")

    def sources(self, target: str) -> list[str]:
        """Returns the codes of the languages that are translated into one. Raises Refused (400) where none is."""
        found = [m.languages[0] for m in self.all if primary_language(m.languages[1]) == primary_language(target)]
        if not found:
            raise Refused(400, f"{target} is not available as a target language")
        return found

    def close(self, seconds: float | None = None) -> bool:
        """Returns whether all models have done what was asked of them; see BatchQueue.close."""
        return all([model.queue.close(seconds) for model in self.all])


def load_served(
    folder: Path,
    engine: str | None,
    device: str,
    checkpoint: str,
    change: Callable[[DecodeConfig], DecodeConfig],
    batch_sentences: int,
    wait_seconds: float,
    seen: Callable[[int], None] = lambda size: None,
) -> ServedModel:
    """Returns a run or an export, loaded. engine: mt, ctranslate2, or None for what the folder is for.

    `change` gets the folder's search settings. Raises ValueError as load_translator and load_engine.
    """
    if engine == "mt" and is_export(folder):
        raise ValueError(
            f"--engine=mt: {folder} is an export; leave --engine out, or give the run that it was made from"
        )
    decode = change(load_decode(folder))
    own = load_translator(folder, device, checkpoint, decode) if is_run(folder) else None
    by_ours = own is not None and engine != "ctranslate2"
    translator = own if by_ours else load_engine(folder, device, checkpoint, decode)
    return ServedModel(
        folder.resolve().name, load_languages(folder), translator, own, batch_sentences, wait_seconds, seen
    )


def _html(text: str, translator: TextTranslator) -> str:
    try:  # the mark says what the encoding is, whatever the text says
        page = translate_html(text.encode("utf-8-sig"), "q", translator) if text else b""
    except ValueError as error:
        raise Refused(400, str(error)) from error
    return page.decode("utf-8-sig")
