"""Translates with a folder in transformers' format through its own classes, as a user without mt would.

By our search's rules, where the folder's own defaults stop earlier, know one longest output for all, and compare what
reached it by score with what ended: early_stopping="never", a longest output for each length of source, and unfinished
hypotheses only where none ended.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt.config import DecodeConfig
from mt.data.filters import is_empty
from mt.tokenizer import EOS_ID, PAD_ID, TokenizerPair, without_separators
from mt.translation.lines import Translation, longest_output

_NOTHING_ENDED = -1e8  # generate gives -1e9 where no hypothesis ended


@torch.inference_mode()
def translate_by_transformers(
    folder: Path, texts: list[str], decode: DecodeConfig, tokenizers: TokenizerPair
) -> list[Translation]:
    """Returns the translations of the folder's model and tokenizer; the text's ends have no spaces.

    tokenizers: ours, to know the tokens by their ids. The model's positions have to reach one further than the longest
    output.
    """
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    model.generation_config.max_length = None  # one for each length of source is given instead
    pieces = tokenizers.target.pieces(list(range(tokenizers.target.size)))
    our_ids = {piece: i for i, piece in enumerate(pieces)}
    results = [Translation("", 0.0, [], False, False) for _ in texts]
    by_length: dict[int, list[int]] = {}
    tags = tokenizer.convert_tokens_to_ids(decode.tags.split())
    encoded = [[] if is_empty(text) else tags + _ids(tokenizer, text) for text in texts]
    for index, ids in enumerate(encoded):
        by_length.setdefault(len(ids), []).append(index)
    for length, members in by_length.items():
        if not length:
            continue
        at_once = max(1, decode.batch_tokens // (length * decode.beam_size))
        for start in range(0, len(members), at_once):
            batch = members[start : start + at_once]
            found = _search(model, [encoded[i] for i in batch], longest_output(decode, length - 1))
            for index, (output, score) in zip(batch, found, strict=True):
                text = tokenizer.decode(output, skip_special_tokens=True)
                tokens = [our_ids[piece] for piece in tokenizer.convert_ids_to_tokens(output)]
                ended = EOS_ID in tokens
                tokens = [i for i in tokens if i != EOS_ID]
                results[index] = Translation(text, score, tokens, False, not ended)
    return results


def _ids(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(without_separators(text), truncation=True)["input_ids"]


def _search(model: Any, sources: list[list[int]], longest: int) -> list[tuple[list[int], float]]:
    """Returns the best output of each source, without <s>, and its score."""
    found = _generate(model, sources, longest)
    open_ended = [index for index, (output, _) in enumerate(found) if EOS_ID not in output]
    if open_ended and model.generation_config.num_beams > 1:
        # the same search, but that what reached its longest length goes one step further and is lost there
        again = _generate(model, [sources[index] for index in open_ended], longest + 1, [_EndsAfter(longest)])
        for index, (output, score) in zip(open_ended, again, strict=True):
            if score > _NOTHING_ENDED:
                found[index] = output, score
    return found


def _generate(
    model: Any, sources: list[list[int]], longest: int, processors: Sequence[Any] = ()
) -> list[tuple[list[int], float]]:
    input_ids = torch.tensor(sources)
    found = model.generate(
        input_ids=input_ids,
        attention_mask=torch.ones_like(input_ids),
        max_new_tokens=longest,
        early_stopping="never" if model.generation_config.num_beams > 1 else False,
        logits_processor=list(processors),
        return_dict_in_generate=True,
        output_scores=True,
    )
    scores = getattr(found, "sequences_scores", None)  # of beams only
    outputs = [[i for i in ids[1:] if i != PAD_ID] for ids in found.sequences.tolist()]
    return list(zip(outputs, [0.0] * len(outputs) if scores is None else scores.tolist(), strict=True))


class _EndsAfter:
    """Gives every output of `longest` tokens no way to go on."""

    def __init__(self, longest: int) -> None:
        self.longest = longest

    def __call__(self, input_ids: Tensor, log_probs: Tensor) -> Tensor:
        return torch.full_like(log_probs, -torch.inf) if input_ids.shape[1] > self.longest else log_probs
