"""A larger residual stream computes the same, with a larger epsilon."""

import math
from dataclasses import replace

import pytest
import torch

from mt.export.rescale import stream_times
from mt.model.layout import Layout
from mt.model.transformer import Transformer
from tests.export.small_runs import MODEL, make_tokenizers, random_model


@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("tying", ["three_way", "decoder", "none"])
def test_logits_stay(norm_position, tying):
    tokenizers = make_tokenizers(True)
    # large enough to be seen where the epsilon does not fit
    config = replace(MODEL, norm_position=norm_position, tying=tying, norm_epsilon=0.001)
    model = random_model(config, tokenizers, sharpness=1.0).double()
    factor = math.sqrt(10)
    other = (
        Transformer(replace(config, norm_epsilon=0.01), tokenizers.source.size, tokenizers.target.size).double().eval()
    )
    other.load_state_dict(stream_times(model.state_dict(), config, factor))
    for embedding in {other.source_embedding, other.target_embedding}:
        embedding.table = model.source_embedding.table * factor
    source, target = Layout.from_lengths([3, 5]), Layout.from_lengths([4, 2])
    tokens = torch.tensor([5, 9, 3, 8, 12, 13, 7, 3]), torch.tensor([2, 7, 8, 9, 2, 4])
    with torch.no_grad():
        expected = model.logits(model(tokens[0], source, tokens[1], target))
        found = other.logits(other(tokens[0], source, tokens[1], target))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
