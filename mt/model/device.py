"""Which device to compute on."""

import torch


def resolve_device(name: str) -> torch.device:
    """Returns the device of a name: auto (cuda, then mps, else cpu), cpu, cuda, cuda:N or mps.

    Raises ValueError where the device is unknown or this machine does not have it.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    available = [f"cuda:{index}" for index in range(gpus)]
    if torch.backends.mps.is_available():
        available.append("mps")
    available.append("cpu")
    if name == "auto":
        return torch.device(available[0])
    if name not in available and not (name == "cuda" and gpus):
        raise ValueError(f"device={name}: must be auto or one that this machine has: {', '.join(available)}")
    return torch.device(name)
