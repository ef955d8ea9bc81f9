"""Translates by CTranslate2, with the interface and the results of Translator.

Equal to our own search: score = sum of log probabilities / length^alpha with </s> counted (CTranslate2 counts it where
it is asked to return it), a longest output of its own for each source, sources cut at decode.max_source_tokens, <pad>,
<unk> and <s> never in an output.

Where results can differ:
- CTranslate2 ends a sentence after beam_size * patience finished hypotheses, ours when no live one can win any more.
  With PATIENCE, its own default, a better one is missed at times, at half the time; with EXHAUSTIVE never. For lists
  of several translations LIST_PATIENCE is the least, so that they are full.
- <pad>, <unk> and <s> take places in its beam, and are left out afterwards; a source for which nothing else remains is
  searched again without them, which spreads their share of probability over the other tokens.
- An output that reaches its longest length is compared by score with those that ended; here too the latter go first.
- Sums in another order: near-ties can fall the other way, and with int8, int16 or half precision, more than ties.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mt.config import DecodeConfig
from mt.mapping import from_mapping, read_json
from mt.tensors import check_sha256
from mt.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, TokenizerPair
from mt.translation.beam import Hypothesis
from mt.translation.lines import LineTranslator, longest_output

PATIENCE = 1.0  # finished hypotheses that a search waits for, as a multiple of beam_size
LIST_PATIENCE = 4.0
AT_ONCE = 2000  # sources given to CTranslate2 together, which batches them; progress is told between
# most of decode.batch_tokens on a CPU: larger batches are slower, and one thread waits longer for another's
CPU_BATCH_TOKENS = 2560
EXHAUSTIVE = 1e6  # more than there can be: each sentence is searched up to its longest output
OURS_ALONE = "coverage_penalty", "repetition_penalty", "beam_groups", "min_length_ratio"  # settings of our own search
RECORD = "export.json"  # what mt export writes into a folder, and knows it by
INSTALL = "pip install ctranslate2, or mt with its extra [export]"


class CTranslate2Translator(LineTranslator):
    """A folder in CTranslate2's format with our tokenizers and search settings.

    device: auto, cpu, cuda or cuda:N; patience: PATIENCE or EXHAUSTIVE. Raises ValueError where ctranslate2 is not
    installed, or cannot load the model or use the device.
    """

    def __init__(
        self,
        folder: Path,
        tokenizers: TokenizerPair,
        decode: DecodeConfig,
        device: str = "auto",
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(tokenizers, decode)
        self._engine, self._patience = _load(folder, device), patience
        self._pieces = tokenizers.source.pieces(list(range(tokenizers.source.size)))
        target_pieces = tokenizers.target.pieces(list(range(tokenizers.target.size)))
        self._ids = {piece: i for i, piece in enumerate(target_pieces)}
        self._never = [[target_pieces[i]] for i in (PAD_ID, UNK_ID, BOS_ID)]
        self._tags = [[tag] for tag in tokenizers.target.tags]

    def search(
        self, texts: list[str], sources: list[list[int]], n_best: int
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        decode = self.decode
        cut = [ids[: decode.max_source_tokens] for ids in sources]
        order = sorted((i for i, ids in enumerate(cut) if ids), key=lambda i: -len(cut[i]))
        for start in range(0, len(order), AT_ONCE):
            batch = order[start : start + AT_ONCE]
            pieces = [[self._pieces[i] for i in cut[index]] for index in batch]
            yield batch, self._translate(pieces, [longest_output(decode, len(cut[index])) for index in batch], n_best)

    def _translate(self, sources: list[list[str]], limits: list[int], n_best: int) -> list[list[Hypothesis]]:
        """Searches all up to the largest limit, and those again whose outputs came out longer than their own."""
        found = self._best(sources, max(limits), n_best)
        again: dict[int, list[int]] = {}
        for index, (hypotheses, limit) in enumerate(zip(found, limits, strict=True)):
            if any(len(h.tokens) + h.finished > limit for h in hypotheses):
                again.setdefault(limit, []).append(index)
        for limit, indices in again.items():
            better = self._best([sources[index] for index in indices], limit, n_best)
            for index, hypotheses in zip(indices, better, strict=True):
                found[index] = hypotheses
        return found

    def _best(self, sources: list[list[str]], longest: int, n_best: int) -> list[list[Hypothesis]]:
        found = self._ask(sources, longest, n_best, [])
        empty = [index for index, hypotheses in enumerate(found) if not hypotheses]
        if empty:
            again = self._ask([sources[index] for index in empty], longest, n_best, self._never)
            for index, hypotheses in zip(empty, again, strict=True):
                found[index] = hypotheses
        return [sorted(hypotheses, key=lambda h: (not h.finished, -h.score))[:n_best] for hypotheses in found]

    def _ask(
        self, sources: list[list[str]], longest: int, n_best: int, never: list[list[str]]
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each source that hold nothing but pieces of text."""
        decode = self.decode
        beam = decode.beam_size
        patience = self._patience if n_best == 1 else max(self._patience, LIST_PATIENCE)
        # all: those that ended can be worse than unfinished ones; 1: CTranslate2 may end when its best one has ended
        wanted = 1 if patience == PATIENCE or beam == 1 else round(beam * patience)
        most = CPU_BATCH_TOKENS if self._engine.device == "cpu" else decode.batch_tokens
        results = self._engine.translate_batch(
            sources,
            max_batch_size=max(1, min(decode.batch_tokens, most) // beam),
            batch_type="tokens",
            beam_size=beam,
            patience=1 if beam == 1 else patience,
            num_hypotheses=wanted,
            length_penalty=decode.length_penalty,
            no_repeat_ngram_size=decode.no_repeat_ngram_size,
            max_input_length=0,
            max_decoding_length=longest,
            min_decoding_length=0,  # 1, the default, keeps </s> out of the first step's probabilities
            return_scores=True,
            return_end_token=True,
            suppress_sequences=[*self._tags, *never] or None,
        )
        return [
            [
                Hypothesis([i for i in ids if i != EOS_ID], score, EOS_ID in ids)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
                if min(ids := [self._ids[piece] for piece in pieces]) >= EOS_ID
            ]
            for result in results
        ]


def load_ctranslate2_translator(
    folder: Path, device: str = "auto", decode: DecodeConfig | None = None
) -> CTranslate2Translator:
    """Returns a translator of a folder that mt export --to ctranslate2 wrote; `decode` replaces its search settings.

    Raises ValueError where a file is missing or damaged, where the sources or outputs that `decode` allows are longer
    than the model's table of positions, and as CTranslate2Translator.
    """
    record = read_record(folder)
    if record.get("to") != "ctranslate2":
        raise ValueError(f"{folder}: was exported to {record.get('to')}; mt translates by exports to ctranslate2 alone")
    for name, digest in record.get("sha256", {}).items():  # exports of earlier versions lack it
        check_sha256(folder / name, digest)
    decode = decode or exported_decode(folder)
    for name, value in ours_alone(decode).items():
        raise ValueError(
            f"decode.{name}={value}: is a setting of mt's own search: leave it out, or translate without "
            "--engine=ctranslate2"
        )
    positions = record.get("positions")
    longest = max(decode.max_source_tokens + 1, longest_output(decode, decode.max_source_tokens))
    if positions is not None and longest > positions:
        raise ValueError(
            f"decode.max_source_tokens={decode.max_source_tokens}: allows {longest} tokens, and the model in {folder} "
            f"was exported for {positions}; lower it, or export again from a run with this setting"
        )
    tokenizers = TokenizerPair.load(folder)
    if record.get("tokenizer_fingerprint", tokenizers.fingerprint) != tokenizers.fingerprint:
        raise ValueError(f"{folder}: its tokenizers are not those that it was exported with; export it again")
    return CTranslate2Translator(folder, tokenizers, decode, device)


def ours_alone(decode: DecodeConfig) -> dict[str, float]:
    """Returns the settings in use, by name, that no engine but our own search has."""
    defaults = DecodeConfig()
    return {name: getattr(decode, name) for name in OURS_ALONE if getattr(decode, name) != getattr(defaults, name)}


def import_ctranslate2() -> Any:
    """Returns the module. Raises ValueError where it is not installed."""
    try:
        import ctranslate2
    except ImportError as error:
        raise ValueError(f"ctranslate2 is not installed: {INSTALL}") from error
    return ctranslate2


def exported_decode(folder: Path) -> DecodeConfig:
    """Returns the search settings that an export was made with. Raises ValueError as read_record."""
    return from_mapping(DecodeConfig, read_record(folder).get("decode", {}), "decode")


def read_record(folder: Path) -> dict[str, Any]:
    """Returns what mt export noted in a folder. Raises ValueError where it did not write the folder."""
    file = folder / RECORD
    if not file.exists():
        raise ValueError(f"{folder}: holds no {RECORD}: no folder that mt export wrote")
    record = read_json(file)
    if not str(record.get("made_by", "")).startswith("mt "):
        raise ValueError(f"{file}: was not written by mt export")
    return record


def _load(folder: Path, device: str) -> Any:
    """Returns a ctranslate2.Translator."""
    ctranslate2 = import_ctranslate2()
    kind, _, number = device.partition(":")
    # a thread for each batch: several threads in the small operations of one step gain little
    threads = torch.get_num_threads() if kind == "cpu" or not ctranslate2.get_cuda_device_count() else 1
    try:
        return ctranslate2.Translator(
            str(folder), device=kind, device_index=int(number or 0), inter_threads=threads, intra_threads=1
        )
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{folder}: CTranslate2 cannot load it on device={device}: {reason}") from error
