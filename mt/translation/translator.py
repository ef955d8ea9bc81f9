"""From strings to strings with our own models and search: for validation, the command line and servers."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from mt.checkpoint import check_tokenizer, load_config, load_tokenizers, load_weights, pointed, read_state
from mt.config import DecodeConfig
from mt.model.allocator import keep_freed_memory
from mt.model.device import resolve_device
from mt.model.layout import Layout
from mt.model.precision import in_precision
from mt.model.transformer import Transformer
from mt.threads import threads_of_one_core
from mt.tokenizer import EOS_ID, TokenizerPair
from mt.translation.alternatives import beginnings, next_word
from mt.translation.beam import Hypothesis, beam_search
from mt.translation.constrained import constrained_search
from mt.translation.ensemble import Ensemble
from mt.translation.forced import Forced, force
from mt.translation.lines import LineTranslator, Translation, lines, longest_output
from mt.translation.mbr import expected_chrf
from mt.translation.phrases import Speller, spaced
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

SAMPLES_AT_ONCE = 256  # of a sentence: more are drawn after one another, so that memory is bounded


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
    translation holds; where words have spaces between them, that none begins with. guide: from a text to what its
    translations are held to (drawn ones to the prefix alone); a phrase that cannot be written with the target's pieces,
    or holds what is forbidden, raises ValueError.
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
        for own in self.models:
            own.unwritten = list(tokenizers.target.tags.values())
        self.speller = Speller(tokenizers.target, spaced(target_language))
        texts = [self.speller.written(text).decode() for text in forbidden]
        self._forbidden = Forbidden(texts, tokenizers.target.piece_bytes)  # of all threads: what it stores, all may use

    def search(
        self, texts: list[str], sources: list[list[int]], n_best: int
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        guidance = [self.guide(text) for text in texts]
        for phrase in {phrase for own in guidance for phrase in own.phrases}:
            if self._forbidden.in_text(self.speller.written(phrase)):
                raise ValueError(f"{phrase!r}: must be in a translation, but holds what is forbidden: leave one out")
        for prefix in {own.prefix for own in guidance if own.prefix and self._forbidden.texts}:
            if self._forbidden.in_text(self.speller.written(prefix)):
                raise ValueError(f"{prefix!r}: is the prefix, but holds what is forbidden: leave one out")
        rows = self.decode.beam_size
        return self._in_batches(
            sources, rows, lambda batch, own: self._search(own, n_best, [guidance[index] for index in batch])
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

        The same seed, line number and text give the same samples, whatever else is translated. Raises ValueError for a
        count below 1 or a seed below 0.
        """
        for name, value, least in (("count", count, 1), ("seed", seed, 0)):
            if value < least:
                raise ValueError(f"{name}={value}: must be at least {least}")

        def draw(batch: list[int], own: list[list[int]]) -> list[list[Hypothesis]]:
            memory, layout = self._encode(own)
            guidance = [self.guide(texts[index]) for index in batch]
            limits, rules = self._bounds(own, guidance)
            found: list[list[Hypothesis]] = [[] for _ in batch]
            for portion in range(-(-count // SAMPLES_AT_ONCE)):
                seeds = [[seed, first_line + index, *([portion] if portion else [])] for index in batch]
                rows = min(SAMPLES_AT_ONCE, count - portion * SAMPLES_AT_ONCE)
                choices = sampling, seeds, self.decode.length_penalty, rules
                for own_found, more in zip(
                    found, sample(self.model, memory, layout, limits, rows, *choices), strict=True
                ):
                    own_found += more
            return found

        sources, rows = self.sources(texts), min(count, SAMPLES_AT_ONCE)
        return self.results(sources, self._in_batches(sources, rows, draw), progress, lines(texts, first_line))

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

    def force(self, sources: list[list[int]], translations: list[list[int]]) -> list[Forced | None]:
        """Returns what the model thinks of each source's translation, both given as ids; None for an empty source.

        Longer translations than any output can be are cut (`longest_forced`).
        """
        sources = [self._cut(ids) for ids in sources]
        targets = [ids[: self.longest_forced] for ids in translations]
        results: list[Forced | None] = [None] * len(sources)
        sides = zip(sources, targets, strict=True)
        lengths = [max(len(source), len(target)) if source else 0 for source, target in sides]
        for batch in self._batches(lengths, self.decode.beam_size):
            views = force(self.models, [sources[i] for i in batch], [targets[i] for i in batch])
            for index, view in zip(batch, views, strict=True):
                results[index] = view
        return results

    def details(self, source: list[int], translation: list[int], view: Forced | None) -> dict[str, object]:
        """Returns what `force` found as JSON values, given the ids of both sides."""
        if view is None:
            return {"source_pieces": [], "pieces": [], "log_probabilities": [], "alignment": ""}
        return {
            "source_pieces": self.tokenizers.source.pieces(self._cut(source)),
            "pieces": self.tokenizers.target.pieces(translation[: self.longest_forced]),
            "log_probabilities": view.log_probs,
            "alignment": " ".join(f"{s}-{t}" for s, t in view.alignment()),
        }

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
        sources, free = [source] * len(ways), [Guidance()] * len(ways)
        memory, layout = self._encode(sources)
        limits, others = self._bounds(sources, free)
        rules = [TargetPrefix([way.tokens for way in ways], [[]] * len(ways), others)]
        limits = [limit + len(way.tokens) for limit, way in zip(limits, ways, strict=True)]
        found: dict[str, Alternative] = {}
        hypotheses = beam_search(
            self.model, memory, layout, limits, 1, self.decode.length_penalty, 1, rules, self.decode.lookahead
        )
        for way, (best,) in zip(ways, hypotheses, strict=True):
            whole = self.tokenizers.target.decode(best.tokens)
            word = next_word(self.tokenizers.target, best.tokens, len(way.tokens), prefix, self.speller.spaced)
            if not word:  # the translation ends here
                continue
            if word in found:  # two pieces can begin the same word
                probability = found[word].probability + way.probability
                found[word] = replace(found[word], probability=probability)
            else:
                found[word] = Alternative(word, way.probability, whole)
        return sorted(found.values(), key=lambda alternative: -alternative.probability)[:count]

    def _in_batches(
        self,
        sources: list[list[int]],
        rows: int,
        search: Callable[[list[int], list[list[int]]], list[list[Hypothesis]]],
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Yields, batch after batch, indices and what `search` finds; it gets the indices and their sources, cut.

        rows: how many hypotheses it keeps of each. On a CPU each thread has a batch of its own: sharing the small
        operations of a step would cost more than it gains.
        """
        limit = self.decode.max_source_tokens
        threads = torch.get_num_threads() if self.model.device.type == "cpu" else 1
        training = [model for model in self.models if model.training]
        for model in training:  # only then: other threads may be translating
            model.eval()

        def own(batch: list[int]) -> tuple[list[int], list[list[Hypothesis]]]:
            return batch, search(batch, [self._cut(sources[index]) for index in batch])

        try:
            batches = list(self._batches([min(len(ids), limit) for ids in sources], rows, threads))
            if threads == 1 or len(batches) < 2:
                yield from map(own, batches)
                return
            lanes = threads_of_one_core(threads, "search")
            try:
                yield from lanes.map(own, batches)
            finally:
                lanes.shutdown(cancel_futures=True)
                torch.set_num_threads(threads)  # a lane's number would be that of all threads that start later
        finally:
            for model in training:
                model.train()

    def _cut(self, ids: list[int]) -> list[int]:
        return ids[: self.decode.max_source_tokens]

    def _batches(self, lengths: list[int], rows: int, at_least: int = 1) -> Iterator[list[int]]:
        """Yields indices of all lengths but 0, the longest first, so that too little memory shows at once.

        The tokens of a batch, </s> counted, times rows are at most decode.batch_tokens, or it is one sentence.
        at_least: how many batches there should be, where there are enough sentences.
        """
        order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
        share = -(-sum(lengths[i] + 1 for i in order) // at_least)
        most = max(min(self.decode.batch_tokens // rows, share), 1)
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

    def _bounds(self, sources: list[list[int]], guidance: Sequence[Guidance]) -> tuple[list[int], list[Rule]]:
        """Returns the longest output of each source, to which a prefix adds its length, and the rules of the batch.

        Those are the ones that the settings ask for, and those of its texts.
        """
        decode, rules = self.decode, list[Rule]()
        if decode.repetition_penalty != 1:
            rules.append(RepetitionPenalty(decode.repetition_penalty))
        if decode.no_repeat_ngram_size:
            rules.append(NoRepeatedNgram(decode.no_repeat_ngram_size))
        if decode.min_length_ratio:
            rules.append(MinimumLength([math.floor(decode.min_length_ratio * len(ids)) for ids in sources]))
        if self._forbidden.texts:
            rules.append(self._forbidden)
        spelled = {text: self.speller.prefix(text) for text in {own.prefix for own in guidance}}
        tokens, longer = zip(*(spelled[own.prefix] for own in guidance), strict=True)
        if any(tokens):
            rules = [TargetPrefix(tokens, longer, rules)]
        limits = [longest_output(decode, len(ids)) + len(prefix) for ids, prefix in zip(sources, tokens, strict=True)]
        return limits, rules

    def _search(self, sources: list[list[int]], n_best: int, guidance: Sequence[Guidance]) -> list[list[Hypothesis]]:
        """Returns up to n_best hypotheses of each source; those with phrases are searched apart from the others."""
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for with_phrases in (True, False):
            chosen = [index for index, own in enumerate(guidance) if bool(own.phrases) == with_phrases]
            if chosen:
                own_guidance, own_sources = [guidance[index] for index in chosen], [sources[index] for index in chosen]
                alike = self._search_alike(own_sources, n_best, own_guidance, with_phrases)
                for index, hypotheses in zip(chosen, alike, strict=True):
                    found[index] = hypotheses
        return found

    def _search_alike(
        self, sources: list[list[int]], n_best: int, guidance: Sequence[Guidance], with_phrases: bool
    ) -> list[list[Hypothesis]]:
        """Searches in one beam, or in groups of a diverse one, without hypotheses that two of them found."""
        decode, diversity = self.decode, Diversity(self.decode.diversity_penalty)
        memory, layout = self._encode(sources)
        limits, rules = self._bounds(sources, guidance)
        start = self.model, memory, layout, limits
        rescored = decode.beam_groups > 1 or decode.coverage_penalty > 0
        width = decode.beam_size // decode.beam_groups
        count = width if rescored else n_best
        if decode.beam_groups > 1:
            rules.append(diversity)
        phrases = [self.speller.phrases(own.phrases) for own in guidance]
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for _ in range(decode.beam_groups):
            if with_phrases:
                beam = width, decode.length_penalty, phrases, self.speller.glues
                group = constrained_search(*start, *beam, count, rules, decode.lookahead)
            else:
                margin = decode.margin or math.inf
                group = beam_search(*start, width, decode.length_penalty, count, rules, decode.lookahead, margin)
            for own, more in zip(found, group, strict=True):
                own += [h for h in more if h.tokens not in [known.tokens for known in own]]
            diversity.next_group()
        if rescored:
            found = [self._rescored(source, own)[:n_best] for source, own in zip(sources, found, strict=True)]
        return found

    def _rescored(self, source: list[int], found: list[Hypothesis]) -> list[Hypothesis]:
        """Returns hypotheses without what the diversity of groups took from their scores, with that of coverage."""
        decode, scored = self.decode, []
        views = force(self.models, [source] * len(found), [h.tokens for h in found])
        for hypothesis, view in zip(found, views, strict=True):
            score = hypothesis.score
            if decode.beam_groups > 1:
                factors = [
                    decode.repetition_penalty if t in hypothesis.tokens[:i] else 1
                    for i, t in enumerate(hypothesis.tokens)
                ]
                log_probs = view.log_probs if hypothesis.finished else view.log_probs[:-1]
                gains = [gain * factor for gain, factor in zip(log_probs, [*factors, 1], strict=False)]
                score = math.fsum(gains) / max(len(gains), 1) ** decode.length_penalty
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
    precision: str = "float32",
) -> Translator:
    """Returns a translator made of a run folder's model and tokenizers.

    `checkpoint` is best, last or the name of a folder below checkpoints/; `decode` replaces the run's search settings.
    together_with: more runs, whose models form an ensemble with the first one's. forbidden, guide: see Translator.
    precision: see in_precision. Raises ValueError where a file is missing, damaged or does not fit the others, or the
    device is not there.
    """
    run_dir = Path(run_dir)
    config, tokenizers = load_config(run_dir), load_tokenizers(run_dir)
    folders = run_dir, *map(Path, together_with)
    models = [in_precision(_load_model(folder, tokenizers, device, checkpoint), precision) for folder in folders]
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
