"""What a model thinks of given translations: log probabilities of their tokens, and what each token looked at.

One pass of the decoder over the whole translation, as in training: `mt score`, scores of tokens, alignments and the
coverage of the source all come from here, so the search need not keep them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt.model.layout import Layout
from mt.model.recording import Recording
from mt.model.transformer import Transformer
from mt.tokenizer import BOS_ID, EOS_ID


@dataclass(frozen=True)
class Forced:
    """A translation of n tokens, seen with </s>; the source of m tokens likewise."""

    log_probs: list[float]  # [n + 1], in nats, </s> last
    attention: Tensor  # [n + 1, m + 1] float32: from target to source, the mean of one layer's heads; rows sum to 1

    @property
    def total(self) -> float:
        return math.fsum(self.log_probs)

    def alignment(self) -> list[tuple[int, int]]:
        """Returns (source, target) for each target token: the source token it looked at most, </s> left out."""
        if self.attention.shape[1] < 2:
            return []
        return [(int(s), t) for t, s in enumerate(self.attention[:-1, :-1].argmax(1).tolist())]

    def coverage(self) -> float:
        """Returns the coverage penalty of Wu et al. 2016 (equation 14), at most 0, of the source without </s>."""
        return float(self.attention[:, :-1].sum(0).clamp(max=1).log().clamp_min(-20).sum())


def force(
    models: Sequence[Transformer], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[Forced]:
    """Returns the view of each target given its source, of one model or of an ensemble (the mean of probabilities).

    Ids come without <s> and </s>, and no source is empty. The attention is that of the last decoder layer but one,
    whose heads align best (Garg et al. 2019), or of the only one. The models must be in evaluation mode.
    """
    if not sources:
        return []
    views = [_view(model, sources, targets) for model in models]
    found = []
    for of_models in zip(*views, strict=True):
        log_probs = torch.stack([view[0] for view in of_models]).logsumexp(0) - math.log(len(models))
        found.append(Forced(log_probs.tolist(), torch.stack([view[1] for view in of_models]).mean(0)))
    return found


@torch.inference_mode()
def _view(
    model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[tuple[Tensor, Tensor]]:
    """Returns for each target its log probabilities [n + 1] and attention [n + 1, m + 1], on the CPU."""
    device, layer = model.device, max(len(model.decoder_layers) - 2, 0)
    source_layout = Layout.from_lengths([len(ids) + 1 for ids in sources], device)
    target_layout = Layout.from_lengths([len(ids) + 1 for ids in targets], device)
    source = torch.tensor([i for ids in sources for i in (*ids, EOS_ID)], device=device)
    target_input = torch.tensor([i for ids in targets for i in (BOS_ID, *ids)], device=device)
    target_output = torch.tensor([i for ids in targets for i in (*ids, EOS_ID)], device=device)
    recording = Recording(only_unmasked=True)
    memory = model.encode(source, source_layout)
    hidden = model.decode(target_input, target_layout, memory, source_layout, recording)
    log_probs = model.logits(hidden).log_softmax(1).gather(1, target_output[:, None]).squeeze(1)
    weights = recording.unmasked[layer].mean(1).float().cpu()  # [B, T, S]
    rows = log_probs.double().cpu().split(list(target_layout.lengths))
    return [
        (row, weights[index, : target_layout.lengths[index], : source_layout.lengths[index]])
        for index, row in enumerate(rows)
    ]
