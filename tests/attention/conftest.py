"""A small run from English to Chinese with random weights."""

import pytest
import torch

from mt.config import DecodeConfig, ModelConfig, TokenizerConfig, TrainConfig
from mt.model.transformer import Transformer
from mt.tokenizer import train_tokenizers
from mt.translation.translator import load_translator
from tests.untrained_runs import save_untrained

PAIRS = [
    ("I love china", "我爱中国"),
    ("I love tea", "我爱茶"),
    ("you eat fish", "你吃鱼"),
    ("I drink tea", "我想吃酸菜鱼"),
]


@pytest.fixture(scope="session")
def run_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "small"
    config = TrainConfig(
        model=ModelConfig(24, 32, 3, 2, 3, tying="decoder"),
        tokenizer=TokenizerConfig(joint=False, vocabulary_size=300),
        decode=DecodeConfig(beam_size=2, max_length_ratio=1.0, max_length_offset=3),
    )
    with pytest.warns(UserWarning):  # so little text gives fewer pieces
        tokenizers = train_tokenizers(PAIRS * 5, config.tokenizer, 1)
    torch.manual_seed(1)
    model = Transformer(config.model, tokenizers.source.size, tokenizers.target.size)
    model.output_table.data *= 4  # so that not everything is equally likely
    save_untrained(folder, config, tokenizers, model)
    return folder


@pytest.fixture(scope="session")
def translator(run_dir):
    return load_translator(run_dir, "cpu")
