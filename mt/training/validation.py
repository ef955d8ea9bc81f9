"""Validation: loss over held-out pairs, and BLEU and chrF of real translations of their sources."""

import math
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch

from mt.attention.choice import Choice
from mt.attention.picture import picture, pixels
from mt.attention.view import fits, look
from mt.config import DecodeConfig, TrainConfig
from mt.data.batch import Batch, collate
from mt.data.batching import cut_by_budget
from mt.data.encoded import EncodedCorpus
from mt.data.tags import CorpusTags
from mt.evaluation.metrics import score_corpus
from mt.model.transformer import Transformer
from mt.training.distributed import Group
from mt.training.loss import smoothed_cross_entropy
from mt.training.monitor import Monitor
from mt.translation.translator import Translator

_SAMPLES_SEEN = 2  # in pictures of what they look at


@dataclass(frozen=True)
class Validation:
    """loss is nats per target token without smoothing (</s> counted); samples are (source, translation, reference)."""

    values: dict[str, float]  # loss, perplexity, bleu, chrf
    signatures: dict[str, str]  # of bleu and chrf
    samples: list[tuple[str, str, str]]


def in_order(corpus: EncodedCorpus, tags: CorpusTags, batch_tokens: int, pairs: np.ndarray) -> Iterator[Batch]:
    """Yields the given pairs of a corpus as batches of similar lengths."""
    before = {pair: tags.ids[number] for pair, number in zip(pairs.tolist(), tags.corpora(pairs), strict=True)}
    source_lengths, target_lengths = corpus.source_lengths[pairs], corpus.target_lengths[pairs]
    order = np.lexsort((source_lengths, target_lengths))
    cuts = cut_by_budget(np.maximum(source_lengths, target_lengths)[order] + 1, batch_tokens)
    for start, end in zip(cuts[:-1], cuts[1:], strict=True):
        chosen = pairs[order[start:end]].tolist()
        sources = [np.concatenate([before[i], corpus.source_ids(i)]) for i in chosen]
        yield collate(sources, [corpus.target_ids(i) for i in chosen], chosen)


def too_long(corpus: EncodedCorpus, decode: DecodeConfig) -> np.ndarray:
    """Returns which pairs have no part in the loss, since attention to so long a side can take all memory: [pairs]."""
    return np.maximum(corpus.source_lengths, corpus.target_lengths) > decode.max_source_tokens


def validation_decode(config: TrainConfig) -> DecodeConfig:
    """Returns the run's search settings with the beam of validations, which is never searched in groups."""
    return replace(
        config.decode,
        beam_size=config.trainer.validation_beam_size,
        beam_groups=1,
        diversity_penalty=DecodeConfig.diversity_penalty,
    )


def chosen_pairs(corpus_pairs: list[int], most: int) -> np.ndarray:
    """Returns the first pairs of each corpus, in proportion to its size but one at least, about `most` together."""
    total = sum(corpus_pairs)
    counts = [max(count * min(most, total) // total, min(count, 1)) for count in corpus_pairs]
    firsts = np.cumsum([0, *corpus_pairs])
    return np.concatenate([first + np.arange(count) for first, count in zip(firsts, counts, strict=False)])


def _translated(translator: Translator, tags: CorpusTags, pairs: np.ndarray, sources: list[str]) -> list[str]:
    """Returns the translations of the sources, each behind the tags of its pair's corpus."""
    found = [""] * len(sources)
    places_of: dict[str, list[int]] = {}
    for place, number in enumerate(tags.corpora(pairs)):
        places_of.setdefault(tags.names[number], []).append(place)
    for names, places in places_of.items():
        translations = translator.with_tags(names).translate([sources[place] for place in places])
        for place, translation in zip(places, translations, strict=True):
            found[place] = translation
    return found


@torch.no_grad()
def validate(
    model: Transformer,
    translator: Translator,
    corpus: EncodedCorpus,
    config: TrainConfig,
    autocast: AbstractContextManager,
    group: Group,
) -> Validation:
    """Returns the scores of the model, in evaluation mode, on the validation corpus; dropout is back on afterwards.

    The ranks of the group share the work and all return the same.
    """
    chosen = chosen_pairs(corpus.corpus_pairs, config.trainer.validate_max_sentences)
    own = chosen[group.rank :: group.world_size]
    tags = CorpusTags(config.data.valid, corpus.corpus_pairs, translator.tokenizers.source, "valid", config.decode.tags)
    model.eval()
    total, tokens = 0.0, 0
    for batch in in_order(corpus, tags, config.trainer.batch_tokens, own[~too_long(corpus, config.decode)[own]]):
        batch = batch.to(model.device)
        with autocast:
            hidden = model(batch.source, batch.source_layout, batch.target_input, batch.target_layout)
            loss = smoothed_cross_entropy(*model.factors(hidden), batch.target_output, 0.0, batch.target_tokens)
        total += float(loss.negative_log_likelihood)
        tokens += loss.tokens
    total, tokens = group.table([total, tokens]).sum(0).tolist()
    mean = total / tokens if tokens else math.nan
    texts = [corpus.texts(int(i)) for i in chosen]
    sources, references = [source for source, _ in texts], [target for _, target in texts]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model at the beginning of its training rarely ends its sentences
        shares = group.gather(_translated(translator, tags, own, sources[group.rank :: group.world_size]))
    translations = [""] * len(chosen)
    for rank, share in enumerate(shares):
        translations[rank :: group.world_size] = share
    scores = score_corpus(translations, references, config.data.target_language)
    model.train()
    values = {"loss": mean, "perplexity": math.exp(min(mean, 700.0))}
    values.update({name: score.value for name, score in scores.items()})
    samples = list(zip(sources[:4], translations[:4], references[:4], strict=True))
    return Validation(values, {name: score.signature for name, score in scores.items()}, samples)


def report(monitor: Monitor, step: int, result: Validation, translator: Translator) -> None:
    """Tells what a validation found; TensorBoard gets the cross-attention of samples, each layer's mean of heads."""
    monitor.validation(step, result.values, result.samples)
    if not monitor.shows_images:
        return
    translator.model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fonts, at every validation
        for number, (source, translation, _) in enumerate(result.samples[:_SAMPLES_SEEN], start=1):
            if fits(translator, source, translation):
                view = look(translator, source, translation)
                monitor.image(step, f"valid/attention_{number}", pixels(picture(view, Choice("cross", head=0))))
    translator.model.train()
