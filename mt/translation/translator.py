"""From strings to strings with our own models and search: for validation, the command line and servers."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from mt.checkpoint import check_tokenizer, load_config, load_tokenizers, load_weights, pointed, read_state
from mt.config import DecodeConfig
from mt.model.allocator import keep_freed_memory
from mt.model.device import resolve_device
from mt.model.layout import Layout
from mt.model.transformer import Transformer
from mt.tokenizer import EOS_ID, TokenizerPair
from mt.translation.alternatives import beginnings, next_word
from mt.translation.beam import Hypothesis, beam_search
from mt.translation.constrained import constrained_search
from mt.translation.ensemble import Ensemble
from mt.translation.forced import Forced, force
from mt.translation.lines import LineTranslator, Translation, lines, longest_output
from mt.translation.mbr import expected_chrf
from mt.translation.phrases import Speller, longest_first, spaced
from mt.translation.rules import (
    Diversity,
    Forbidden,
    MinimumLength,
    NoRepeatedNgram,
    RepetitionPenalty,
    Rule,
    TargetPrefix,
)
from mt.translation.sampling import Sampling, sample


@dataclass(frozen=True)
class Guidance:
    """What a translation is held to."""

    prefix: str = ""  # it begins with this text, whose last piece may go on
    phrases: tuple[str, ...] = ()  # it holds each of these


@dataclass(frozen=True)
class Alternative:
    """One way to go on after the beginning of a translation."""

    word: str  # after a space where it is a word of its own
    probability: float  # of its first piece
    translation: str  # the likeliest one that goes on so


class Translator(LineTranslator):
    """A model, or an ensemble, with its tokenizers and search settings.

    target_language, a code such as zh, says whether words have spaces between them. forbidden: texts that no
    translation holds; in a language with spaces, that no word of it begins with. guide: from a text to what its
    translations by search are held to; a phrase that cannot be written with the target's pieces raises ValueError.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        tokenizers: TokenizerPair,
        decode: DecodeConfig,
        target_language: str = "en",
        forbidden: Sequence[str] = (),
        guide: Callable[[str], Guidance] = lambda text: Guidance(),
    ) -> None:
        super().__init__(tokenizers, decode)
        self.model, self.guide = model, guide
        self.models = model.models if isinstance(model, Ensemble) else [model]
        self.speller = Speller(tokenizers.target, spaced(target_language))
        self._forbidden = [self.speller.written(text) for text in forbidden]

    def search(
        self, texts: list[str], sources: list[list[int]], n_best: int
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        guidance = [self.guide(text) for text in texts]
        return self._in_batches(
            sources, lambda batch, own: self._search(own, n_best, [guidance[index] for index in batch])
        )

    def sample(
        self,
        texts: list[str],
        count: int,
        sampling: Sampling,
        seed: int,
        progress: Callable[[int], None] | None = None,
        first_line: int = 1,
    ) -> list[list[Translation]]:
        """Returns `count` translations of each text drawn from the model, in the order drawn; some may be equal.

        The same seed, line number and text give the same samples, whatever else is translated.
        """

        def draw(batch: list[int], own: list[list[int]]) -> list[list[Hypothesis]]:
            memory, layout = self._encode(own)
            seeds = [[seed, first_line + index] for index in batch]
            rules, penalty = self._rules(own, [Guidance()] * len(own)), self.decode.length_penalty
            return sample(self.model, memory, layout, self._limits(own), count, sampling, seeds, penalty, rules)

        sources = self.sources(texts)
        return self.results(sources, self._in_batches(sources, draw), progress, lines(texts, first_line))

    def translate_by_consensus(
        self,
        texts: list[str],
        count: int,
        sampling: Sampling,
        seed: int,
        progress: Callable[[int], None] | None = None,
        first_line: int = 1,
    ) -> list[list[Translation]]:
        """Returns for each text the sample of `count` that is most like all of them by chrF (minimum Bayes risk).

        Its score is that likeness, 0 to 100.
        """
        found = []
        for samples in self.sample(texts, count, sampling, seed, progress, first_line):
            likeness = expected_chrf([translation.text for translation in samples])
            best = int(likeness.argmax())
            found.append([replace(samples[best], score=float(likeness[best]))])
        return found

    def force(self, texts: list[str], translations: list[list[int]]) -> list[Forced | None]:
        """Returns what the model thinks of each text's translation, given as ids; None for a text without content.

        Longer translations than any output can be are cut (`longest_forced`).
        """
        sources = [self._cut(ids) for ids in self.sources(texts)]
        targets = [ids[: self.longest_forced] for ids in translations]
        results: list[Forced | None] = [None] * len(texts)
        sides = zip(sources, targets, strict=True)
        lengths = [max(len(source), len(target)) if source else 0 for source, target in sides]
        for batch in self._batches(lengths):
            views = force(self.models, [sources[i] for i in batch], [targets[i] for i in batch])
            for index, view in zip(batch, views, strict=True):
                results[index] = view
        return results

    @property
    def longest_forced(self) -> int:
        """The most tokens, </s> left out, that are read of a given translation."""
        return longest_output(self.decode, self.decode.max_source_tokens)

    def alternatives(self, text: str, prefix: str, count: int) -> list[Alternative]:
        """Returns up to `count` different words that can follow a prefix of a translation, the likeliest first."""
        source = self._cut(self.sources([text])[0])
        if not source:
            return []
        ways = beginnings(self.model, *self._encode([source]), self.speller, prefix, 2 * count)
        memory, layout = self._encode([source] * len(ways))
        rules = [TargetPrefix([way.tokens for way in ways], [[]] * len(ways))]
        limits = [limit + len(way.tokens) for limit, way in zip(self._limits([source] * len(ways)), ways, strict=True)]
        found: dict[str, Alternative] = {}
        hypotheses = beam_search(
            self.model, memory, layout, limits, 1, self.decode.length_penalty, 1, rules, self.decode.lookahead
        )
        for way, (best,) in zip(ways, hypotheses, strict=True):
            whole = self.tokenizers.target.decode(best.tokens)
            word = next_word(self.tokenizers.target, best.tokens, len(way.tokens), prefix, self.speller.spaced)
            if word in found:  # two pieces can begin the same word
                probability = found[word].probability + way.probability
                found[word] = replace(found[word], probability=probability)
            else:
                found[word] = Alternative(word, way.probability, whole)
        return sorted(found.values(), key=lambda alternative: -alternative.probability)[:count]

    def _in_batches(
        self, sources: list[list[int]], search: Callable[[list[int], list[list[int]]], list[list[Hypothesis]]]
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Yields, batch after batch, indices and what `search` finds; it gets the indices and their sources, cut.

        On a CPU each thread has a batch of its own: sharing the small operations of a step would cost more than it
        gains.
        """
        limit = self.decode.max_source_tokens
        threads = torch.get_num_threads() if self.model.device.type == "cpu" else 1
        training = [model for model in self.models if model.training]
        for model in training:  # only then: other threads may be translating
            model.eval()

        def own(batch: list[int]) -> tuple[list[int], list[list[Hypothesis]]]:
            return batch, search(batch, [self._cut(sources[index]) for index in batch])

        try:
            batches = list(self._batches([min(len(ids), limit) for ids in sources], threads))
            if threads == 1 or len(batches) < 2:
                yield from map(own, batches)
                return
            lanes = ThreadPoolExecutor(threads, "search", initializer=torch.set_num_threads, initargs=(1,))
            try:
                yield from lanes.map(own, batches)
            finally:
                lanes.shutdown(cancel_futures=True)
        finally:
            for model in training:
                model.train()

    def _cut(self, ids: list[int]) -> list[int]:
        return ids[: self.decode.max_source_tokens]

    def _limits(self, sources: list[list[int]]) -> list[int]:
        return [longest_output(self.decode, len(ids)) for ids in sources]

    def _batches(self, lengths: list[int], at_least: int = 1) -> Iterator[list[int]]:
        """Yields indices of all lengths but 0, the longest first, so that too little memory shows at once.

        The tokens of a batch, </s> counted, times the beam are at most decode.batch_tokens, or it is one sentence.
        at_least: how many batches there should be, where there are enough sentences.
        """
        order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
        share = -(-sum(lengths[i] + 1 for i in order) // at_least)
        most = max(min(self.decode.batch_tokens // self.decode.beam_size, share), 1)
        batch: list[int] = []
        tokens = 0
        for index in order:
            if batch and tokens + lengths[index] + 1 > most:
                yield batch
                batch, tokens = [], 0
            batch.append(index)
            tokens += lengths[index] + 1
        if batch:
            yield batch

    @torch.inference_mode()
    def _encode(self, sources: list[list[int]]) -> tuple[torch.Tensor, Layout]:
        layout = Layout.from_lengths([len(ids) + 1 for ids in sources], self.model.device)
        stream = torch.tensor([i for ids in sources for i in (*ids, EOS_ID)], device=self.model.device)
        return self.model.encode(stream, layout), layout

    def _rules(self, sources: list[list[int]], guidance: Sequence[Guidance]) -> list[Rule]:
        """Returns the rules of a batch: those that the settings ask for, and those of its texts."""
        decode, rules = self.decode, list[Rule]()
        if decode.repetition_penalty != 1:
            rules.append(RepetitionPenalty(decode.repetition_penalty))
        if decode.no_repeat_ngram_size:
            rules.append(NoRepeatedNgram(decode.no_repeat_ngram_size))
        if decode.min_length_ratio:
            rules.append(MinimumLength([math.floor(decode.min_length_ratio * len(ids)) for ids in sources]))
        if self._forbidden:
            rules.append(Forbidden(self._forbidden, self.tokenizers.target.piece_bytes))
        if any(own.prefix for own in guidance):
            tokens, choices = zip(*(self.speller.prefix(own.prefix) for own in guidance), strict=True)
            rules = [TargetPrefix(tokens, choices, rules)]
        return rules

    def _search(self, sources: list[list[int]], n_best: int, guidance: Sequence[Guidance]) -> list[list[Hypothesis]]:
        decode = self.decode
        memory, layout = self._encode(sources)
        limits, rules = self._limits(sources), self._rules(sources, guidance)
        for index, own in enumerate(guidance):
            limits[index] += len(self.speller.prefix(own.prefix)[0])
        found_of_all = decode.beam_size if decode.coverage_penalty else n_best
        if any(own.phrases for own in guidance):
            phrases = [[self.speller.phrase(text) for text in longest_first(own.phrases)] for own in guidance]
            settings = (
                decode.beam_size,
                decode.length_penalty,
                phrases,
                self.speller.glues,
                found_of_all,
                rules,
                decode.lookahead,
            )
            found = constrained_search(self.model, memory, layout, limits, *settings)
        elif decode.beam_groups > 1:
            found = self._search_in_groups(memory, layout, limits, n_best, rules)
        else:
            settings = decode.beam_size, decode.length_penalty, found_of_all, rules, decode.lookahead
            found = beam_search(self.model, memory, layout, limits, *settings)
        if decode.coverage_penalty or decode.beam_groups > 1:
            found = [self._rescored(source, own)[:n_best] for source, own in zip(sources, found, strict=True)]
        return found

    def _search_in_groups(
        self, memory: torch.Tensor, layout: Layout, limits: list[int], n_best: int, rules: list[Rule]
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of all groups of a diverse beam search, without those that two of them found."""
        decode, diversity = self.decode, Diversity(self.decode.diversity_penalty)
        width = decode.beam_size // decode.beam_groups
        if not 1 <= n_best <= decode.beam_size:
            raise ValueError(f"n_best={n_best}: must be between 1 and decode.beam_size={decode.beam_size}")
        found: list[list[Hypothesis]] = [[] for _ in limits]
        for _ in range(decode.beam_groups):
            group = beam_search(
                self.model,
                memory,
                layout,
                limits,
                width,
                decode.length_penalty,
                width,
                [*rules, diversity],
                decode.lookahead,
            )
            for own, more in zip(found, group, strict=True):
                own += [h for h in more if h.tokens not in [known.tokens for known in own]]
            diversity.next_group()
        return found

    def _rescored(self, source: list[int], found: list[Hypothesis]) -> list[Hypothesis]:
        """Returns hypotheses with the score of the model's own probabilities and of coverage, the best first."""
        decode, scored = self.decode, []
        views = force(self.models, [source] * len(found), [h.tokens for h in found])
        for hypothesis, view in zip(found, views, strict=True):
            log_probs = view.log_probs if hypothesis.finished else view.log_probs[:-1]
            score = math.fsum(log_probs) / max(len(log_probs), 1) ** decode.length_penalty
            if decode.coverage_penalty:
                score += decode.coverage_penalty * view.coverage()
            scored.append(replace(hypothesis, score=score))
        return sorted(scored, key=lambda h: (not h.finished, -h.score))


def load_translator(
    run_dir: Path | str,
    device: str = "auto",
    checkpoint: str = "best",
    decode: DecodeConfig | None = None,
    together_with: Sequence[Path | str] = (),
    forbidden: Sequence[str] = (),
    guide: Callable[[str], Guidance] = lambda text: Guidance(),
) -> Translator:
    """Returns a translator made of a run folder's model and tokenizers.

    `checkpoint` is best, last or the name of a folder below checkpoints/; `decode` replaces the run's search settings.
    together_with: more runs, whose models form an ensemble with the first one's. forbidden, guide: see Translator.
    Raises ValueError where a file is missing, damaged or does not fit the others, or the device is not there.
    """
    run_dir = Path(run_dir)
    config, tokenizers = load_config(run_dir), load_tokenizers(run_dir)
    models = [_load_model(folder, tokenizers, device, checkpoint) for folder in (run_dir, *map(Path, together_with))]
    model = Ensemble(models) if together_with else models[0]
    return Translator(model, tokenizers, decode or config.decode, config.data.target_language, forbidden, guide)


def _load_model(run_dir: Path, tokenizers: TokenizerPair, device: str, checkpoint: str) -> Transformer:
    config, folder = load_config(run_dir), pointed(run_dir, checkpoint)
    state = read_state(folder)
    check_tokenizer(state, tokenizers)
    for name, value in asdict(config.model).items():
        trained = state.get("model", {}).get(name, value)
        if trained != value:
            raise ValueError(
                f"{run_dir / 'config.yaml'}: model.{name}={value}, but the weights were trained with {trained}"
            )
    model = Transformer(config.model, tokenizers.source.size, tokenizers.target.size)
    load_weights(model, folder)
    model.to(resolve_device(device)).eval()
    if model.device.type == "cpu":
        keep_freed_memory()
    return model
