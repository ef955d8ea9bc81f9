"""From strings to strings: the one way to decode, for validation, the command line and servers."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from mt.checkpoint import check_tokenizer, load_config, load_tokenizers, load_weights, pointed, read_state
from mt.config import DecodeConfig
from mt.data.clean import is_empty
from mt.model.allocator import keep_freed_memory
from mt.model.device import resolve_device
from mt.model.layout import Layout
from mt.model.transformer import Transformer
from mt.tokenizer import EOS_ID, TokenizerPair
from mt.translation.beam import Hypothesis, beam_search

_LINES_SHOWN = 10  # in a warning


@dataclass(frozen=True)
class Translation:
    text: str  # one line
    score: float  # sum of log probabilities in nats / length^length_penalty; 0 for an empty source
    tokens: list[int]  # target ids without <s> and </s>
    source_truncated: bool  # the source was longer than decode.max_source_tokens, and its end was not read
    unfinished: bool  # stopped at its longest length, before </s>


class LineTranslator:
    """What all engines have in common: texts in, as many texts out, in order; an engine adds `_search`.

    Texts are translated each for itself: neighbours and batch sizes change only the speed (float32; in half precision
    a near-tie can fall the other way).
    """

    def __init__(self, tokenizers: TokenizerPair, decode: DecodeConfig) -> None:
        self.tokenizers, self.decode = tokenizers, decode

    def _search(self, sources: list[list[int]], n_best: int) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Yields, batch after batch, indices of sources and for each 1 to n_best hypotheses, best first.

        Of all sources that hold tokens, in any order; longer ones than decode.max_source_tokens are cut to it.
        """
        raise NotImplementedError

    def translate(self, texts: list[str], progress: Callable[[int], None] | None = None) -> list[str]:
        """Returns one line of text for each text, in order; see translate_n_best."""
        return [translations[0].text for translations in self.translate_n_best(texts, 1, progress)]

    def translate_n_best(
        self, texts: list[str], n_best: int, progress: Callable[[int], None] | None = None, first_line: int = 1
    ) -> list[list[Translation]]:
        """Returns for each text, in order, its 1 to n_best best translations, which all differ in their text.

        A text without visible characters has "" as its only translation. `progress` is called with the number of texts
        done so far, after each batch. Warns of sources that were cut and of unfinished translations; line numbers
        there begin at first_line. Raises ValueError where n_best is more than decode.beam_size.
        """
        sources = [[] if is_empty(text) else ids for text, ids in zip(texts, self._encode(texts), strict=True)]
        results = [[Translation("", 0.0, [], False, False)] for _ in texts]
        done = sum(not ids for ids in sources)
        for batch, found in self._search(sources, n_best):
            for index, hypotheses in zip(batch, found, strict=True):
                results[index] = self._translations(hypotheses, len(sources[index]) > self.decode.max_source_tokens)
            done += len(batch)
            if progress is not None:
                progress(done)
        self._warn(sources, results, first_line)
        return results

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return self.tokenizers.source.encode(texts) if texts else []

    def _translations(self, hypotheses: list[Hypothesis], truncated: bool) -> list[Translation]:
        by_text: dict[str, Translation] = {}  # one text can be cut into pieces in several ways: the best one stays
        for found in hypotheses:
            text = self.tokenizers.target.decode(found.tokens)
            by_text.setdefault(text, Translation(text, found.score, found.tokens, truncated, not found.finished))
        return list(by_text.values())

    def _warn(self, sources: list[list[int]], results: list[list[Translation]], first_line: int) -> None:
        limit = self.decode.max_source_tokens
        cut = [f"line {line} ({len(ids)} tokens)" for line, ids in enumerate(sources, first_line) if len(ids) > limit]
        if cut:
            warnings.warn(
                f"cut to decode.max_source_tokens={limit} tokens, the rest is not translated: {_list(cut)}",
                stacklevel=3,
            )
        unfinished = [
            f"line {line}" for line, translations in enumerate(results, first_line) if translations[0].unfinished
        ]
        if unfinished:
            warnings.warn(
                f"{len(unfinished)} of {len(results)} translations reached their longest length (decode."
                f"max_length_ratio, decode.max_length_offset) and are unfinished: {_list(unfinished)}",
                stacklevel=3,
            )


class Translator(LineTranslator):
    """A model with its tokenizers and search settings."""

    def __init__(self, model: Transformer, tokenizers: TokenizerPair, decode: DecodeConfig) -> None:
        super().__init__(tokenizers, decode)
        self.model = model

    def _search(self, sources: list[list[int]], n_best: int) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        was_training = self.model.training
        if was_training:  # only then: other threads may be translating
            self.model.eval()
        try:
            for batch in self._batches(sources):
                yield batch, self._search_batch([sources[i] for i in batch], n_best)
        finally:
            if was_training:
                self.model.train()

    def _batches(self, sources: list[list[int]]) -> Iterator[list[int]]:
        """Yields indices of non-empty sources, the longest first, so that too little memory shows at once.

        The tokens of a batch, </s> counted, times the beam are at most decode.batch_tokens, or it is one sentence.
        """
        limit = self.decode.max_source_tokens
        lengths = [min(len(ids), limit) + 1 for ids in sources]
        batch: list[int] = []
        tokens = 0
        for index in sorted((i for i, ids in enumerate(sources) if ids), key=lambda i: -lengths[i]):
            if batch and (tokens + lengths[index]) * self.decode.beam_size > self.decode.batch_tokens:
                yield batch
                batch, tokens = [], 0
            batch.append(index)
            tokens += lengths[index]
        if batch:
            yield batch

    @torch.inference_mode()
    def _search_batch(self, sources: list[list[int]], n_best: int) -> list[list[Hypothesis]]:
        decode = self.decode
        cut = [ids[: decode.max_source_tokens] for ids in sources]
        layout = Layout.from_lengths([len(ids) + 1 for ids in cut], self.model.device)
        stream = torch.tensor([i for ids in cut for i in (*ids, EOS_ID)], device=self.model.device)
        max_lengths = [longest_output(decode, len(ids)) for ids in cut]
        memory = self.model.encode(stream, layout)
        settings = decode.beam_size, decode.length_penalty, n_best, decode.no_repeat_ngram_size
        return beam_search(self.model, memory, layout, max_lengths, *settings)


def longest_output(decode: DecodeConfig, source_tokens: int) -> int:
    """Returns the longest output of a source of so many tokens (</s> not counted), in tokens, </s> counted."""
    return math.ceil(decode.max_length_ratio * source_tokens) + decode.max_length_offset


def load_translator(
    run_dir: Path | str, device: str = "auto", checkpoint: str = "best", decode: DecodeConfig | None = None
) -> Translator:
    """Returns a translator made of a run folder's model and tokenizers.

    `checkpoint` is best, last or the name of a folder below checkpoints/; `decode` replaces the run's search settings.
    Raises ValueError where a file is missing, damaged or does not fit the others, or the device is not there.
    """
    run_dir = Path(run_dir)
    config, tokenizers = load_config(run_dir), load_tokenizers(run_dir)
    folder = pointed(run_dir, checkpoint)
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
    return Translator(model, tokenizers, decode or config.decode)


def _list(lines: list[str]) -> str:
    more = f" and {len(lines) - _LINES_SHOWN} more" if len(lines) > _LINES_SHOWN else ""
    return ", ".join(lines[:_LINES_SHOWN]) + more
