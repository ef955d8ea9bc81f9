"""Optimizers: AdamW from torch, and Muon for the hidden matrices."""

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from mt.config import OptimConfig
from mt.model.transformer import Transformer
from mt.tensors import fill, own_part, own_rows, whole_of

# Each odd quintic a x + b x^3 + c x^5 is the one nearest to 1 on what the one before leaves of the singular values from
# 0.007 to 1 (Amsel et al. 2025, "The Polar Express"): three end within 0.61 and 1.39, smaller values grow 91 times.
QUINTICS = ((8.2154, -24.1017, 17.8288), (3.7971, -2.8372, 0.5497), (2.9277, -2.1903, 0.4764))


def orthogonalise(matrices: Tensor) -> Tensor:
    """Returns the nearest matrices with singular values about 1, for a stack [n, rows, columns] (Newton-Schulz).

    The iteration of Muon (Jordan et al. 2024), here in the type of its input: half precision is slow on CPUs. Singular
    values are at most the root of the norm of X X^T, a bound far nearer to the largest one than the norm of X; from
    there three steps do what took five.
    """
    x = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    gram = torch.bmm(x, x.mT)
    bound = gram.norm(dim=(-2, -1), keepdim=True) + 1e-12  # of a zero matrix 0
    x, gram = x * bound.rsqrt(), gram / bound
    for step, (first, third, fifth) in enumerate(QUINTICS):
        if step:
            gram = torch.bmm(x, x.mT)
        polynomial = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
        x = torch.baddbmm(x, polynomial, x, beta=first)  # a x + b x x^T x + c (x x^T)^2 x
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x


class AdamW:
    """Adam with decoupled weight decay, by torch's fused kernel.

    Not torch.optim.AdamW itself, whose base class imports torch.compile's machinery: three seconds of every start.
    """

    def __init__(self, decayed: list[Tensor], plain: list[Tensor], config: OptimConfig, fused: bool) -> None:
        self.groups = [(decayed, config.weight_decay), (plain, 0.0)]
        self.peak, self.config, self.fused = config.lr, config, fused
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        for parameter in decayed + plain:
            step = torch.zeros((), dtype=torch.float32, device=parameter.device if fused else "cpu")
            self.state[parameter] = {"step": step} | {
                key: torch.zeros_like(parameter, requires_grad=False) for key in ("exp_avg", "exp_avg_sq")
            }

    @torch.no_grad()
    def step(self, lr: float, skip: Tensor | None) -> None:
        for group, weight_decay in self.groups:
            parameters = [parameter for parameter in group if parameter.grad is not None]
            states = [self.state[parameter] for parameter in parameters]
            adamw(
                [own_part(parameter) for parameter in parameters],
                [own_part(parameter.grad) for parameter in parameters],
                [own_part(state["exp_avg"]) for state in states],
                [own_part(state["exp_avg_sq"]) for state in states],
                [],
                [state["step"] for state in states],
                fused=self.fused,
                found_inf=skip,
                amsgrad=False,
                beta1=self.config.beta1,
                beta2=self.config.beta2,
                lr=lr,
                weight_decay=weight_decay,
                eps=self.config.eps,
                maximize=False,
            )


class Muon:
    """Momentum whose update is orthogonalised, for matrices; equal shapes are done in one stack.

    An update of a [rows, columns] matrix is scaled by sqrt(max(1, rows/columns)). Fused projections are taken apart, so
    that each of Q, K and V is orthogonalised on its own. Matrices that ranks share out are gathered, those of one shape
    at a time, and each rank orthogonalises all of them.
    """

    def __init__(self, parameters: list[Tensor], fused: list[int], config: OptimConfig) -> None:
        self.fused = fused  # into how many matrices of equal size each parameter is taken apart, by rows
        self.peak, self.momentum, self.weight_decay = config.muon_lr, 0.95, config.weight_decay
        self.state = {p: {"momentum": torch.zeros_like(p, requires_grad=False)} for p in parameters}

    @torch.no_grad()
    def step(self, lr: float, skip: Tensor | None) -> None:
        applied = 1.0 if skip is None else 1.0 - skip
        stacks: dict[tuple[int, int], list[tuple[Tensor, Tensor, int]]] = {}
        for (parameter, state), fused in zip(self.state.items(), self.fused, strict=True):
            if parameter.grad is None:
                continue
            grad = own_part(parameter.grad)
            grad = grad if skip is None else torch.where(skip > 0, 0.0, grad)
            momentum = own_part(state["momentum"]).lerp_(grad, (1 - self.momentum) * applied)
            update = grad.lerp(momentum, self.momentum)  # Nesterov's
            shape = parameter.shape[0] // fused, parameter.shape[1]
            stacks.setdefault(shape, []).append((update, parameter, fused))
        for (rows, columns), members in stacks.items():
            parts = [part for update, like, fused in members for part in whole_of(update, like).chunk(fused)]
            updates = iter(orthogonalise(torch.stack(parts)))
            scale = lr * max(1.0, rows / columns) ** 0.5
            for _, parameter, fused in members:
                for first in range(0, fused * rows, rows):
                    matrix, own = own_rows(parameter, first, first + rows)
                    update = next(updates)[own]
                    update = update if skip is None else update * applied
                    matrix.mul_(1 - lr * self.weight_decay * applied).sub_(update, alpha=scale)


class Optimizer:
    """AdamW, with Muon beside it for the hidden matrices where the settings ask for it; one handle on both."""

    def __init__(self, model: Transformer, config: OptimConfig) -> None:
        hidden = {n: p for n, p in model.named_parameters() if p.ndim == 2 and "layers." in n}
        by_muon = hidden if config.optimizer == "muon" else {}
        rest = [p for n, p in model.named_parameters() if n not in by_muon]
        decayed = [p for p in rest if p.ndim == 2]
        plain = [p for p in rest if p.ndim != 2]  # biases and norms are not decayed
        self.parts: list[AdamW | Muon] = [AdamW(decayed, plain, config, fused=model.device.type != "mps")]
        if by_muon:
            fused = [3 if ".query_key_value" in n else 2 if ".key_value" in n else 1 for n in by_muon]
            self.parts.append(Muon(list(by_muon.values()), fused, config))
        self.names = {id(p): n for n, p in model.named_parameters()}

    def step(self, factor: float, skip: Tensor | None = None) -> None:
        """Applies the gradients at `factor` times the peak learning rates.

        skip: scalar float32 on the model's device; 1 leaves all as it was, and the host need not know.
        """
        for part in self.parts:
            part.step(part.peak * factor, skip)

    def tensors(self) -> dict[str, Tensor]:
        """Returns all state as tensors named optimizer.PARAMETER.KEY; a step count is a scalar tensor."""
        return {
            f"optimizer.{self.names[id(parameter)]}.{key}": value
            for part in self.parts
            for parameter, state in part.state.items()
            for key, value in state.items()
        }

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Takes back what `tensors` returned. Raises ValueError where one is missing."""
        for name, own in self.tensors().items():
            if name not in tensors:
                raise ValueError(f"the checkpoint has no {name}: it was made with another optimizer or is not complete")
            fill(own, tensors[name])


def clip_gradients(model: nn.Module, largest: float) -> Tensor:
    """Returns the gradient norm, scalar float32, after scaling the gradients down to `largest` (0: no scaling)."""
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), largest or float("inf"))
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # of what ranks hold together
