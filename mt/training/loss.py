"""Label-smoothed cross entropy from hidden vectors, without ever holding logits and their gradient side by side."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mt.data.batch import Batch
from mt.model.transformer import Transformer
from mt.tokenizer import PAD_ID

CHUNK_ROWS = {"cpu": 512}  # fewer make slow matrix products, more outgrow the cache; elsewhere only memory counts
CHUNK_ELEMENTS = 1 << 27  # logits held at a time, at most: half a gigabyte in float32


@dataclass(frozen=True)
class Loss:
    """Sums over the real target tokens (</s> counted, padding not); divide by the global token count for means."""

    smoothed: Tensor  # scalar, differentiable: what training minimises, in nats
    negative_log_likelihood: Tensor  # scalar: without smoothing, for perplexity
    tokens: int


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Computes the gradients in the forward pass, chunk by chunk, while the logits are in the cache.

    With p = softmax(h W^T), the smoothed loss is
    -(1-eps) log p_y - eps/V sum_v log p_v = logsumexp - (1-eps) h.w_y - eps h.mean(W),
    and its gradient with respect to the logits is p - (1-eps) onehot(y) - eps/V. The constant eps/V is added once to
    the products instead of to each logit. A target that is less likely than the smallest normal number (87 nats)
    counts as that in the value; its gradient stays exact.
    """

    @staticmethod
    def forward(ctx, hidden, table, targets, smoothing, compute_dtype, any_padding):  # noqa: ANN001, ANN205
        vocabulary_size = table.shape[0]
        needs_grad = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        work_dtype = torch.promote_types(hidden.dtype, torch.float32)
        real = targets != PAD_ID
        h, w = hidden.to(compute_dtype), table.to(compute_dtype)
        mean_w = table.to(work_dtype).mean(0)
        grad_hidden = torch.empty_like(h) if needs_grad else None
        grad_table = torch.zeros_like(table, dtype=work_dtype) if needs_grad else None
        nll = hidden.new_zeros((), dtype=work_dtype)
        target_logits = hidden.new_zeros((), dtype=work_dtype)
        rows = min(CHUNK_ROWS.get(hidden.device.type, len(hidden)), max(16, CHUNK_ELEMENTS // vocabulary_size))
        smallest = torch.finfo(work_dtype).tiny
        for start in range(0, hidden.shape[0], rows):
            chunk, target, is_real = h[start : start + rows], targets[start : start + rows], real[start : start + rows]
            logits = (chunk @ w.T).to(work_dtype)  # [n, V]
            target_logits += (logits.gather(1, target[:, None]).squeeze(1) * is_real).sum()
            p = torch.softmax(logits, 1, out=logits)
            nll -= (p.gather(1, target[:, None]).squeeze(1).clamp_min(smallest).log() * is_real).sum()
            if needs_grad:
                p[torch.arange(len(target), device=p.device), target] -= 1 - smoothing
                if any_padding:
                    p *= is_real[:, None]
                g = p.to(compute_dtype)
                torch.mm(g, w, out=grad_hidden[start : start + rows])
                if compute_dtype == work_dtype:
                    grad_table.addmm_(g.T, chunk)
                else:
                    grad_table += (g.T @ chunk).to(work_dtype)
        sum_h = (hidden * real[:, None]).sum(0, dtype=work_dtype)
        loss = nll + smoothing * (target_logits - torch.dot(sum_h, mean_w))
        if needs_grad:
            if smoothing:
                grad_hidden -= (smoothing * mean_w).to(compute_dtype) * real[:, None]
                grad_table -= smoothing / vocabulary_size * sum_h
            ctx.save_for_backward(grad_hidden, grad_table)
            ctx.dtypes = hidden.dtype, table.dtype
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx, grad, _):  # noqa: ANN001, ANN205
        grad_hidden, grad_table = ctx.saved_tensors
        hidden_dtype, table_dtype = ctx.dtypes
        grad_hidden = (grad_hidden * grad.to(grad_hidden.dtype)).to(hidden_dtype)
        return grad_hidden, (grad_table * grad).to(table_dtype), None, None, None, None


def smoothed_cross_entropy(hidden: Tensor, table: Tensor, targets: Tensor, smoothing: float, tokens: int) -> Loss:
    """Returns the loss summed over targets that are not padding.

    hidden: [N, D]; table: [V, D], the output embedding; targets: [N] int64, PAD_ID where nothing is to be predicted;
    smoothing: eps, spread evenly over all V entries (padding's included), as torch's F.cross_entropy does;
    tokens: how many targets are not padding. Softmax and sums are float32 (float64 for float64 inputs).
    """
    device_type = hidden.device.type
    compute_dtype = hidden.dtype
    if torch.is_autocast_enabled(device_type):
        compute_dtype = torch.get_autocast_dtype(device_type)
    with torch.autocast(device_type, enabled=False):
        loss, nll = _SmoothedCrossEntropy.apply(hidden, table, targets, smoothing, compute_dtype, tokens < len(targets))
    return Loss(loss, nll, tokens)


class PairLoss(nn.Module):
    """The model and its loss as one module, so that data parallelism sees the whole step. Maps a Batch to its Loss."""

    def __init__(self, model: Transformer, smoothing: float, compiled: bool) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing
        self.run = torch.compile(model.forward, dynamic=True) if compiled else model.forward

    def forward(self, batch: Batch) -> Loss:
        hidden = self.run(batch.source, batch.source_layout, batch.target_input, batch.target_layout)
        table = self.model.output_table
        return smoothed_cross_entropy(hidden, table, batch.target_output, self.smoothing, batch.target_tokens)
