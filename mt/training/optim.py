"""Optimizers: AdamW from torch, and Muon for the hidden matrices."""

import torch
from torch import Tensor, nn

from mt.config import OptimConfig
from mt.model.transformer import Transformer


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Returns the nearest matrices with singular values about 1, for a stack [n, rows, columns] (Newton-Schulz).

    The quintic iteration of Muon (Jordan et al. 2024), here in the type of its input: half precision is slow on CPUs.
    """
    x = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised, for matrices; equal shapes are done in one stack.

    An update of a [rows, columns] matrix is scaled by sqrt(max(1, rows/columns)). Fused projections are taken apart, so
    that each of Q, K and V is orthogonalised on its own.
    """

    def __init__(
        self, parameters: list[Tensor], fused: list[int], lr: float, momentum: float, weight_decay: float
    ) -> None:
        self.fused = fused  # into how many matrices of equal size each parameter is taken apart, by rows
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        group = self.param_groups[0]
        stacks: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for parameter, fused in zip(group["params"], self.fused, strict=True):
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
            momentum = state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
            update = parameter.grad.lerp(momentum, group["momentum"])  # Nesterov's
            for part, matrix in zip(update.chunk(fused), parameter.chunk(fused), strict=True):
                stacks.setdefault(part.shape, []).append((part, matrix))
        for (rows, columns), pairs in stacks.items():
            updates = orthogonalise(torch.stack([update for update, _ in pairs]))
            scale = group["lr"] * max(1.0, rows / columns) ** 0.5
            for update, (_, matrix) in zip(updates, pairs, strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"]).sub_(update, alpha=scale)


class Optimizer:
    """AdamW, with Muon beside it for the hidden matrices where the settings ask for it; one handle on both."""

    def __init__(self, model: Transformer, config: OptimConfig) -> None:
        names = {id(p): n for n, p in model.named_parameters()}
        hidden = {n: p for n, p in model.named_parameters() if p.ndim == 2 and "layers." in n}
        by_muon = hidden if config.optimizer == "muon" else {}
        rest = [p for n, p in model.named_parameters() if n not in by_muon]
        decayed = [p for p in rest if p.ndim == 2]
        plain = [p for p in rest if p.ndim != 2]  # biases and norms are not decayed
        self.parts: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                [
                    {"params": decayed, "weight_decay": config.weight_decay},
                    {"params": plain, "weight_decay": 0.0},
                ],
                lr=config.lr,
                betas=(config.beta1, config.beta2),
                eps=config.eps,
                fused=model.device.type != "mps",
            )  # fmt: skip
        ]
        self.peaks = [config.lr]
        if by_muon:
            fused = [3 if ".query_key_value" in n else 2 if ".key_value" in n else 1 for n in by_muon]
            self.parts.append(Muon(list(by_muon.values()), fused, config.muon_lr, 0.95, config.weight_decay))
            self.peaks.append(config.muon_lr)
        self.names = names

    def step(self, factor: float) -> None:
        """Applies the gradients at `factor` times the peak learning rates."""
        for part, peak in zip(self.parts, self.peaks, strict=True):
            for group in part.param_groups:
                group["lr"] = peak * factor
            part.step()

    def tensors(self) -> dict[str, Tensor]:
        """Returns all state as tensors named optimizer.PARAMETER.KEY; a step count is a scalar tensor."""
        return {
            f"optimizer.{self.names[id(parameter)]}.{key}": value
            for part in self.parts
            for parameter, state in part.state.items()
            for key, value in state.items()
        }

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Takes back what `tensors` returned."""
        for part in self.parts:
            for group in part.param_groups:
                for parameter in group["params"]:
                    prefix = f"optimizer.{self.names[id(parameter)]}."
                    state = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
                    if state:
                        part.state[parameter] = {
                            k: v.clone() if k == "step" else v.to(parameter.device).clone() for k, v in state.items()
                        }


def clip_gradients(model: nn.Module, largest: float) -> Tensor:
    """Returns the gradient norm, scalar float32, after scaling the gradients down to `largest` (0: no scaling)."""
    return torch.nn.utils.clip_grad_norm_(model.parameters(), largest or float("inf"))
