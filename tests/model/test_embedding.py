import pytest
import torch

from mt.model.embedding import Embedding, sinusoids


class Shared(Embedding):
    """Whenever its table grows, another thread puts the shorter one in place that it needed itself."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value[:1024] if name == "table" else value)


@pytest.mark.parametrize("positions", ["sinusoidal", "sinusoidal_paper"])
def test_a_table_that_another_thread_replaces_is_long_enough(positions):
    embedding = Shared(5, 4, positions)
    torch.nn.init.zeros_(embedding.weight)
    for longest in (3, 600, 1500, 600, 5000):
        found = embedding(torch.zeros(longest, dtype=torch.int64), torch.arange(longest), longest)
        assert found.equal(sinusoids(torch.arange(longest), 4, embedding.paper))
        assert len(embedding.table) <= 1024
