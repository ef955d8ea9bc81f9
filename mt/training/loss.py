"""Label-smoothed cross entropy from hidden vectors, without ever holding logits and their gradient side by side."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from mt.data.batch import Batch
from mt.model.attention import attend_varlen
from mt.model.transformer import Transformer
from mt.tokenizer import PAD_ID

CHUNK_ROWS = {"cpu": 512}  # fewer make slow matrix products, more outgrow the cache; elsewhere only memory counts
SHAPES = 64  # of batches that torch.compile makes a graph for, at most; most runs have one to three
CHUNK_ELEMENTS = 1 << 27  # logits held at a time, at most: half a gigabyte in float32


class Loss(NamedTuple):  # whose tensors DDP and FSDP find
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
    def forward(ctx, hidden, table, targets, smoothing, compute_dtype, any_padding, r_drop):  # noqa: ANN001, ANN205
        count, vocabulary_size = len(targets), table.shape[0]
        passes = 2 if r_drop else 1
        needs_grad = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        work_dtype = torch.promote_types(hidden.dtype, torch.float32)
        real = targets != PAD_ID
        h, w = hidden.to(compute_dtype).view(passes, count, -1), table.to(compute_dtype)
        mean_w = table.to(work_dtype).mean(0)
        grad_hidden = torch.empty_like(h) if needs_grad else None
        grad_table = torch.zeros_like(table, dtype=work_dtype) if needs_grad else None
        nll, target_logits, divergence = (hidden.new_zeros((), dtype=work_dtype) for _ in range(3))
        rows = min(CHUNK_ROWS.get(hidden.device.type, passes * count), max(16, CHUNK_ELEMENTS // vocabulary_size))
        rows = max(1, rows // passes)  # of each pass
        smallest = torch.finfo(work_dtype).tiny
        for start in range(0, count, rows):
            part = slice(start, start + rows)
            chunk, target, is_real = h[:, part].flatten(0, 1), targets[part].repeat(passes), real[part].repeat(passes)
            logits = (chunk @ w.T).to(work_dtype)  # [n, V]
            target_logits += (logits.gather(1, target[:, None]).squeeze(1) * is_real).sum()
            difference = logits[: len(logits) // 2] - logits[len(logits) // 2 :] if r_drop else None
            p = torch.softmax(logits, 1, out=logits)
            nll -= (p.gather(1, target[:, None]).squeeze(1).clamp_min(smallest).log() * is_real).sum()
            if r_drop:
                value, p_grad = _divergence(p, difference)
                divergence += (value * is_real[: len(value)]).sum()
                p_grad.mul_(r_drop / 2).add_(p)
            else:
                p_grad = p
            if needs_grad:
                p_grad[torch.arange(len(target), device=p.device), target] -= 1 - smoothing
                if any_padding:
                    p_grad *= is_real[:, None]
                g = p_grad.to(compute_dtype)
                grad_hidden[:, part] = (g @ w).view(passes, -1, h.shape[2])
                if compute_dtype == work_dtype:
                    grad_table.addmm_(g.T, chunk)
                else:
                    grad_table += (g.T @ chunk).to(work_dtype)
        sum_h = (hidden * real.repeat(passes)[:, None]).sum(0, dtype=work_dtype)
        loss = nll + smoothing * (target_logits - torch.dot(sum_h, mean_w)) + r_drop / 2 * divergence
        if needs_grad:
            if smoothing:
                grad_hidden -= (smoothing * mean_w).to(compute_dtype) * real[:, None]
                grad_table -= smoothing / vocabulary_size * sum_h
            ctx.save_for_backward(grad_hidden.view_as(hidden), grad_table)
            ctx.dtypes, ctx.passes = (hidden.dtype, table.dtype), passes
        nll = nll / passes
        ctx.mark_non_differentiable(nll)
        return loss / passes, nll

    @staticmethod
    def backward(ctx, grad, _):  # noqa: ANN001, ANN205
        grad_hidden, grad_table = ctx.saved_tensors
        hidden_dtype, table_dtype = ctx.dtypes
        grad = grad / ctx.passes
        grad_hidden = (grad_hidden * grad.to(grad_hidden.dtype)).to(hidden_dtype)
        return grad_hidden, (grad_table * grad).to(table_dtype), None, None, None, None, None


def _divergence(p: Tensor, difference: Tensor) -> tuple[Tensor, Tensor]:
    """Returns KL(p1|p2) + KL(p2|p1) for each row [n], and its gradient with respect to both passes' logits [2n, V].

    p: [2n, V], the probabilities of the first pass above those of the second; difference: [n, V], logits of the first
    minus those of the second.
    """
    first, second = p.chunk(2)
    likeliest = first.argmax(1, keepdim=True)
    smallest = torch.finfo(p.dtype).tiny
    ratio = first.gather(1, likeliest).log() - second.gather(1, likeliest).clamp_min(smallest).log()
    log_ratio = difference - (difference.gather(1, likeliest) - ratio)  # log p1 - log p2
    forward, backward = (first * log_ratio).sum(1, keepdim=True), -(second * log_ratio).sum(1, keepdim=True)
    grad = torch.cat(
        [first * (log_ratio - forward) + first - second, second * (-log_ratio - backward) + second - first]
    )
    return (forward + backward).squeeze(1), grad


def smoothed_cross_entropy(
    hidden: Tensor, table: Tensor, targets: Tensor, smoothing: float, tokens: int, r_drop: float = 0.0
) -> Loss:
    """Returns the loss summed over targets that are not padding.

    hidden: [N, D], with r_drop [2N, D]: two passes over the same tokens, whose losses are averaged.
    table: [V, D], the output embedding. targets: [N] int64, PAD_ID where nothing is to be predicted.
    smoothing: eps, spread evenly over all V entries (padding's included), as torch's F.cross_entropy does.
    tokens: how many targets are not padding.
    r_drop: alpha of R-Drop (Liang et al. 2021). Half of the paper's loss, so that learning rates keep their meaning:
    the mean of both passes' losses + alpha/4 (KL(p1|p2) + KL(p2|p1)).
    Softmax and sums are float32 (float64 for float64 inputs).
    """
    device_type = hidden.device.type
    compute_dtype = hidden.dtype
    if torch.is_autocast_enabled(device_type):
        compute_dtype = torch.get_autocast_dtype(device_type)
    with torch.autocast(device_type, enabled=False):
        loss, nll = _SmoothedCrossEntropy.apply(
            hidden, table, targets, smoothing, compute_dtype, tokens < len(targets), r_drop
        )
    return Loss(loss, nll, tokens)


class PairLoss(nn.Module):
    """The model and its loss as one module, so that data parallelism sees the whole step. Maps a Batch to its Loss.

    Compiled, with variable-length attention, it is one graph for each shape of batch, so batches should come from
    `pack` with stream_tokens.
    """

    def __init__(self, model: Transformer, smoothing: float, r_drop: float, compiled: bool) -> None:
        super().__init__()
        self.model, self.smoothing, self.r_drop = model, smoothing, r_drop
        self.repeating = compiled and model.attend is attend_varlen  # the others work from lengths on the host
        self.run = model.forward
        if self.repeating:
            torch._dynamo.config.recompile_limit = SHAPES  # with fullgraph one more is an error, not a slower run
            self.run = torch.compile(model.forward, fullgraph=True, dynamic=False)
        elif compiled:
            self.run = torch.compile(model.forward, dynamic=True)

    def forward(self, batch: Batch) -> Loss:
        source_layout, target_layout = batch.source_layout, batch.target_layout
        if self.repeating:
            source_layout, target_layout = source_layout.traceable(), target_layout.traceable()
        pair = batch.source, source_layout, batch.target_input, target_layout
        hidden = torch.cat([self.run(*pair), self.run(*pair)]) if self.r_drop else self.run(*pair)
        factors, targets = self.model.factors(hidden), batch.target_output
        return smoothed_cross_entropy(*factors, targets, self.smoothing, batch.target_tokens, self.r_drop)
