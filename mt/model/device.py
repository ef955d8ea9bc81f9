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


def precision_of(name: str, device: torch.device) -> torch.dtype:
    """Returns the type that matrix products run in; auto is bf16 on a GPU that has it, else float32."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    return {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
