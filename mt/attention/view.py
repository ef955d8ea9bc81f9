"""What a model looked at in one sentence: the weights of every layer and head, with the tokens that they belong to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt.model.layout import Layout
from mt.model.recording import Recording
from mt.model.transformer import Transformer
from mt.tokenizer import BOS_ID, EOS_ID
from mt.translation.translator import Translator

LONGEST = 127  # tokens of either side besides </s> or <s>: a map of more can neither be read nor kept
LIKELIEST = 5  # next tokens kept at each place

Names = Callable[[list[int]], list[str]]  # from ids to pieces


@dataclass(frozen=True)
class Map:
    """One kind of attention: which tokens ask (rows), which are looked at (columns), and how much."""

    kind: str  # encoder, decoder or cross
    rows: list[str]
    columns: list[str]
    weights: Tensor  # [L, H, rows, columns] float32 on the CPU; each row sums to 1


@dataclass(frozen=True)
class View:
    """One sentence in a model, seen in one pass over source and target.

    source: its pieces and </s>. target: what the decoder has read, <s> and the pieces of the translation.
    written: what follows each of these; at the end of a prefix the likeliest token, at the end of a translation </s>.
    likeliest: for each, up to 5 next tokens and their probabilities, the likeliest first.
    """

    source: list[str]
    target: list[str]
    written: list[str]
    likeliest: list[list[tuple[str, float]]]
    encoder: Map
    decoder: Map
    cross: Map

    @property
    def maps(self) -> list[Map]:
        return [self.encoder, self.decoder, self.cross]


def look(translator: Translator, text: str, target: str | None = None, prefix: str | None = None) -> View:
    """Returns what a model looks at while it translates a text.

    Into `target` where it is given; as far as `prefix` where that is given, with what could come next; else into the
    translation that its search finds. Raises ValueError for a text without content and for one that is too long.
    """
    sides = translator.tokenizers
    source = translator.sources([text])[0]
    if not source:
        raise ValueError(f"{text!r}: there is nothing to look at in a sentence without visible characters")
    complete = prefix is None
    _check_length("the sentence", source, min(LONGEST, translator.decode.max_source_tokens))
    if target is None and prefix is None:
        ((found,),) = translator.translate_n_best([text], 1)
        ids, complete = found.tokens, not found.unfinished
    else:
        ids = sides.target.encode([target if prefix is None else prefix])[0]
    return view(translator.models[0], source, ids, complete, sides.source.pieces, sides.target.pieces)


def fits(translator: Translator, text: str, target: str) -> bool:
    """Returns whether `look` takes a sentence and its translation."""
    sides = translator.tokenizers
    source = translator.sources([text])[0]
    longest = min(LONGEST, translator.decode.max_source_tokens)
    return 0 < len(source) <= longest and len(sides.target.encode([target])[0]) <= LONGEST


def view(
    model: Transformer, source: Sequence[int], target: Sequence[int], complete: bool, source_names: Names,
    target_names: Names,
) -> View:  # fmt: skip
    """Returns the view of a source and a target, ids without <s> and </s>; complete: the target ends where it ends.

    One pass of the encoder and one of the decoder, the same that training and `mt score` make. The model must be in
    evaluation mode. Raises ValueError for sentences that are too long.
    """
    _check_length("the sentence", source)
    _check_length("its translation", target)
    in_encoder, in_decoder, probabilities = _watched(model, source, target)
    values, order = probabilities.topk(min(LIKELIEST, probabilities.shape[1]))
    likeliest = [
        list(zip(target_names(ids), own, strict=True)) for ids, own in zip(order.tolist(), values.tolist(), strict=True)
    ]
    read, asked = target_names([BOS_ID, *target]), source_names([*source, EOS_ID])
    written = [*read[1:], target_names([EOS_ID])[0] if complete else likeliest[-1][0][0]]
    return View(
        asked,
        read,
        written,
        likeliest,
        Map("encoder", asked, asked, torch.cat(in_encoder.unmasked).float().cpu()),
        Map("decoder", read, read, torch.cat(in_decoder.masked).float().cpu()),
        Map("cross", read, asked, torch.cat(in_decoder.unmasked).float().cpu()),
    )


@torch.inference_mode()
def _watched(model: Transformer, source: Sequence[int], target: Sequence[int]) -> tuple[Recording, Recording, Tensor]:
    """Returns the records of encoder and decoder, and the probabilities [T, V] of what follows each target token."""
    in_encoder, in_decoder, device = Recording(), Recording(), model.device
    source_layout = Layout.from_lengths([len(source) + 1], device)
    target_layout = Layout.from_lengths([len(target) + 1], device)
    memory = model.encode(torch.tensor([*source, EOS_ID], device=device), source_layout, in_encoder)
    read = torch.tensor([BOS_ID, *target], device=device)
    hidden = model.decode(read, target_layout, memory, source_layout, in_decoder)
    return in_encoder, in_decoder, model.logits(hidden).softmax(1).cpu()


def _check_length(name: str, ids: Sequence[int], most: int = LONGEST) -> None:
    if len(ids) > most:
        raise ValueError(f"{name} has {len(ids)} tokens; attention is shown for up to {most}: give a part of it")
