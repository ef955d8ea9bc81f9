"""What each part of the search does to the scores of a trained run: a table in Markdown for docs/results.md.

    .venv/bin/python scripts/search_parts.py RUN --source test.en --reference test.de \\
        --train-source train.en.gz --train-target train.de.gz --sentences 500 --checkpoints step_00003246,step_00002919

All by mt's own search on the CPU. Terms of the glossary are words of the training pairs that go together (Dice) and
that stand in the reference wherever their source word stands in the source; a constraint is, for each sentence, one
word of its reference that the free translation lacks; forbidden are the words that the free translations hold most.
Where a language has no spaces, two neighbouring characters are a word.
"""

import argparse
import dataclasses
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice, product
from pathlib import Path

from mt.checkpoint import load_config
from mt.data.files import read_lines
from mt.evaluation.metrics import score_corpus, sentence_chrf
from mt.translation.ensemble import Ensemble
from mt.translation.glossary import Glossary
from mt.translation.mbr import expected_chrf
from mt.translation.phrases import spaced
from mt.translation.sampling import Sampling
from mt.translation.translator import Guidance, Translator, load_translator

LEAST_DICE, LEAST_PAIRS = 0.6, 5
FORBIDDEN, LONGEST_LIST, SAMPLES = 20, 10, 32


class Parts:
    """A run, a test set, and rows of the table."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.config = load_config(arguments.run)
        self.language = self.config.data.target_language
        self.spaced = spaced(self.language)
        files = arguments.source, arguments.reference
        self.sources, self.references = (list(islice(read_lines(file), arguments.sentences)) for file in files)
        self.models = [load_translator(arguments.run, "cpu", name).model for name in ("best", *arguments.checkpoints)]
        self.tokenizers = load_translator(arguments.run, "cpu").tokenizers
        self.free: list[str] = []

    def translator(
        self, held: Callable[[str], Guidance] | None = None, forbidden: Sequence[str] = (), **decode: float
    ) -> Translator:
        settings = dataclasses.replace(self.config.decode, **decode)
        guide = held or (lambda text: Guidance())
        return Translator(self.models[0], self.tokenizers, settings, self.language, forbidden, guide)

    def row(self, name: str, translations: list[str], remark: str = "") -> None:
        scores = score_corpus(translations, self.references, self.language)
        print(f"| {name} | {scores['bleu'].value:.2f} | {scores['chrf'].value:.2f} | {remark} |", flush=True)

    def words(self, text: str, lower: bool = False) -> list[str]:
        words = re.findall(r"[^\W\d_]+", text.lower() if lower else text)
        return words if self.spaced else [word[i : i + 2] for word in words for i in range(len(word) - 1)]

    def holds(self, text: str, phrase: str) -> bool:
        return bool(re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text)) if self.spaced else phrase in text

    def drawn(self) -> None:
        for name, sampling in (("all tokens", Sampling()), ("--epsilon 0.02", Sampling(epsilon=0.02))):
            found = self.translator().sample(self.sources, 1, sampling, seed=1)
            self.row(f"one sample, {name}", [translations[0].text for translations in found])
            best = self.translator().translate_by_consensus(self.sources, SAMPLES, sampling, seed=1)
            self.row(f"--consensus {SAMPLES}, {name}", [translations[0].text for translations in best])

    def glossary(self) -> None:
        arguments = self.arguments
        terms = self.right_terms(frequent_pairs(self, arguments.train_source, arguments.train_target))
        glossary = Glossary(terms)
        wanted = [glossary.targets_in(source) for source in self.sources]
        held = self.translator(lambda text: Guidance(phrases=glossary.targets_in(text)))
        self.held_row(f"--glossary of {len(terms)} terms", wanted, held.translate(self.sources))

    def right_terms(self, pairs: dict[str, str]) -> dict[str, str]:
        """Returns the terms that the references have wherever their source word stands."""
        right = Counter[str]()
        sides = list(zip(self.sources, self.references, strict=True))
        for source, reference in sides:
            for word in set(re.findall(r"[^\W\d_]+", source.lower())) & pairs.keys():
                right[word] += 1 if self.holds(reference, pairs[word]) else -len(sides)
        return {word: pairs[word] for word, count in right.items() if count > 0}

    def constraints(self) -> None:
        wanted, generator = [], random.Random(1)
        for reference, translation in zip(self.references, self.free, strict=True):
            lacking = [word for word in self.words(reference) if not self.holds(translation, word)]
            wanted.append((generator.choice(lacking),) if lacking else ())
        phrases = dict(zip(self.sources, wanted, strict=True))
        wanted = [phrases[source] for source in self.sources]  # of a sentence that occurs twice
        held = self.translator(lambda text: Guidance(phrases=phrases[text]))
        self.held_row("a word of each reference", wanted, held.translate(self.sources))

    def held_row(self, name: str, wanted: list[tuple[str, ...]], translations: list[str]) -> None:
        count = sum(map(len, wanted))
        if not count:
            self.row(name, translations, "nothing asked for")
            return

        def hits(texts: list[str]) -> int:
            return sum(self.holds(text, phrase) for text, own in zip(texts, wanted, strict=True) for phrase in own)

        lines = sum(map(bool, wanted))
        before, after = (100 * hits(texts) / count for texts in (self.free, translations))
        self.row(name, translations, f"{count} in {lines} lines; there: {before:.1f}% before, {after:.1f}% with it")

    def forbidden(self) -> None:
        seen = Counter(word for text in self.free for word in set(self.words(text)))
        words = [word for word, _ in seen.most_common(FORBIDDEN)]
        begins = re.compile("|".join(rf"(?<!\w){word}" if self.spaced else word for word in words))
        translations = self.translator(forbidden=words).translate(self.sources)
        before, after = (sum(len(begins.findall(text)) for text in texts) for texts in (self.free, translations))
        self.row(f"--forbid of {len(words)} words", translations, f"they stood {before} times, now {after}")

    def lists(self) -> None:
        """Of an n-best list the translation nearest to the reference, and how like each other all of it are."""
        for groups, penalty in ((1, 0.5), (5, 0.5), (10, 0.5), (10, 1.5)):
            translator = self.translator(beam_size=LONGEST_LIST, beam_groups=groups, diversity_penalty=penalty)
            found = translator.translate_n_best(self.sources, LONGEST_LIST)
            texts = [[translation.text for translation in own] for own in found]
            best = [
                max(own, key=lambda text, reference=reference: sentence_chrf([text], [[reference]])[0][0])
                for own, reference in zip(texts, self.references, strict=True)
            ]
            likeness = sum(float(expected_chrf(own).mean()) for own in texts) / len(texts)
            names = f"beam {LONGEST_LIST}" + (f", {groups} groups, penalty {penalty}" if groups > 1 else "")
            self.row(f"{names}: the first", [own[0] for own in texts], f"chrF2 among each other {likeness:.1f}")
            self.row(f"{names}: the nearest to the reference", best, f"of {sum(map(len, texts)) / len(texts):.1f}")

    def ensemble(self) -> None:
        for name, model in zip(self.arguments.checkpoints, self.models[1:], strict=True):
            single = Translator(model, self.tokenizers, self.config.decode, self.language)
            self.row(f"--checkpoint {name}", single.translate(self.sources))
        together = Translator(Ensemble(self.models), self.tokenizers, self.config.decode, self.language)
        self.row(f"ensemble of these {len(self.models)}", together.translate(self.sources))


def frequent_pairs(parts: Parts, source: Path, target: Path) -> dict[str, str]:
    """Returns for source words the target word with which they go together most, where that is nearly always."""
    sources, targets, both = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for left, right in zip(read_lines(source), read_lines(target), strict=True):
        words, others = set(re.findall(r"[^\W\d_]+", left.lower())), set(parts.words(right))
        sources.update(words)
        targets.update(others)
        both.update(product(words, others))
    best: dict[str, tuple[float, str]] = {}
    for (word, other), count in both.items():
        dice = 2 * count / (sources[word] + targets[other])
        if count >= LEAST_PAIRS and dice >= LEAST_DICE:
            best[word] = max(best.get(word, (0, "")), (dice, other))
    return {word: other for word, (_, other) in best.items()}


def main(arguments: argparse.Namespace) -> None:
    parts = Parts(arguments)
    signature = score_corpus(parts.references, parts.references, parts.language)["bleu"].signature
    print(f"{len(parts.sources)} sentences, BLEU {signature}\n\n| part | BLEU | chrF2 | |\n| --- | --- | --- | --- |")
    parts.free = parts.translator().translate(parts.sources)
    parts.row(f"beam {parts.config.decode.beam_size}", parts.free)
    parts.row("beam 1", parts.translator(beam_size=1).translate(parts.sources))
    for name in arguments.parts:
        getattr(parts, name)()


PARTS = ("glossary", "constraints", "forbidden", "ensemble", "lists", "drawn")

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    for option in ("--source", "--reference", "--train-source", "--train-target"):
        parser.add_argument(option, type=Path, required=True, metavar="FILE")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--checkpoints", type=lambda text: text.split(","), default=[], metavar="NAME,NAME")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=PARTS, metavar=",".join(PARTS))
    main(parser.parse_args())
