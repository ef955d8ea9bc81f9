"""Learning-rate schedules: pure functions of the update and of how far the run is."""

import math

from mt.config import OptimConfig


def learning_rate_factor(config: OptimConfig, step: int, progress: float, d_model: int) -> float:
    """Returns what lr is multiplied with at update `step` (from 1).

    All warm up linearly over warmup_steps. noam is d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (the paper,
    section 5.3); inverse_sqrt reaches 1 at the end of the warm-up and falls with step^-0.5; cosine and linear fall to
    zero at the end of the run, `progress` (0 to 1) being the used share of the first limit: steps,
    epochs or minutes.
    """
    step = max(step, 1)
    warmup = max(config.warmup_steps, 1)
    rising = min(step / warmup, 1.0)
    match config.schedule:
        case "noam":
            return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        case "inverse_sqrt":
            return rising * math.sqrt(warmup / max(step, warmup))
        case "cosine":
            return rising * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
        case "linear":
            return rising * (1 - min(progress, 1.0))
    return rising


def long_warmup(config: OptimConfig, step: int, progress: float) -> str | None:
    """Returns a warning where more than half of the run's updates will be warm-up, judged after `step` of them.

    progress: as above. None where all is well, or nothing is known yet.
    """
    if progress <= 0 or config.warmup_steps <= step / progress / 2:
        return None
    expected = step / progress
    remedy = f"set optim.warmup_steps to a tenth of them ({math.ceil(expected / 10):,})"
    if config.schedule == "inverse_sqrt":
        remedy += ", and optim.schedule=linear, whose rate falls to zero at the end"
    return (
        f"warning: this run makes about {expected:,.0f} updates, and optim.warmup_steps={config.warmup_steps} "
        f"of them raise the learning rate, which hardly teaches the model anything: {remedy}"
    )
