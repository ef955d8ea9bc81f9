"""Translates with a folder in transformers' format through its own classes, as a user without mt would."""

from pathlib import Path
from typing import Any

import torch

from mt.config import DecodeConfig
from mt.data.filters import is_empty
from mt.tokenizer import EOS_ID, PAD_ID, TokenizerPair
from mt.translation.lines import Translation, longest_output


@torch.inference_mode()
def translate_by_transformers(
    folder: Path, texts: list[str], decode: DecodeConfig, tokenizers: TokenizerPair
) -> list[Translation]:
    """Returns the translations of the folder's model and tokenizer; the text's ends have no spaces.

    With our search's rules: early_stopping="never" and a longest output for each length of source, where the folder's
    own defaults stop earlier and know one longest output. tokenizers: ours, to know the tokens by their ids.
    """
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    model.generation_config.max_length = None  # one for each length of source is given instead
    pieces = tokenizers.target.pieces(list(range(tokenizers.target.size)))
    our_ids = {piece: i for i, piece in enumerate(pieces)}
    results = [Translation("", 0.0, [], False, False) for _ in texts]
    by_length: dict[int, list[int]] = {}
    encoded = [[] if is_empty(text) else tokenizer(text, truncation=True)["input_ids"] for text in texts]
    for index, ids in enumerate(encoded):
        by_length.setdefault(len(ids), []).append(index)
    for length, members in by_length.items():
        if not length:
            continue
        at_once = max(1, decode.batch_tokens // (length * decode.beam_size))
        for start in range(0, len(members), at_once):
            batch = members[start : start + at_once]
            found = _generate(model, [encoded[i] for i in batch], longest_output(decode, length - 1))
            for index, ids, score in zip(batch, found["sequences"], found["scores"], strict=True):
                output = [i for i in ids[1:].tolist() if i != PAD_ID]  # without <s>
                text = tokenizer.decode(output, skip_special_tokens=True)
                tokens = [our_ids[piece] for piece in tokenizer.convert_ids_to_tokens(output)]
                ended = EOS_ID in tokens
                tokens = [i for i in tokens if i != EOS_ID]
                results[index] = Translation(text, score, tokens, False, not ended)
    return results


def _generate(model: Any, sources: list[list[int]], longest: int) -> dict[str, Any]:
    """Returns sequences [B, T] and their scores, a number each."""
    input_ids = torch.tensor(sources)
    found = model.generate(
        input_ids=input_ids,
        attention_mask=torch.ones_like(input_ids),
        max_new_tokens=longest,
        early_stopping="never" if model.generation_config.num_beams > 1 else False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    scores = getattr(found, "sequences_scores", None)  # of beams only
    return {"sequences": found.sequences, "scores": [0.0] * len(sources) if scores is None else scores.tolist()}
