import pytest
import torch

from mt.model.device import resolve_device


def test_the_processor_is_always_there():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in ("cuda", "mps", "cpu")


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "cuda:x"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(ValueError, match=f"device={name}: must be auto or one that this machine has: .*cpu"):
        resolve_device(name)


def test_auto_prefers_the_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("auto") == torch.device("cuda:0")
    assert resolve_device("cuda") == torch.device("cuda")
    with pytest.raises(ValueError, match="cuda:0, cuda:1, cpu"):
        resolve_device("cuda:2")
