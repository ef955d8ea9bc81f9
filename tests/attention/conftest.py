"""A small run from English to Chinese with random weights."""

import pytest
import torch

from mt.checkpoint import create_run, point, save_checkpoint
from mt.config import DecodeConfig, ModelConfig, TokenizerConfig, TrainConfig
from mt.model.transformer import Transformer
from mt.tokenizer import train_tokenizers
from mt.translation.translator import load_translator

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
    create_run(folder, config, tokenizers, [])
    state = {"tokenizer_fingerprint": tokenizers.fingerprint, "metrics": {}, "finished": True}
    saved = save_checkpoint(folder, 1, model.state_dict(), {}, state)
    point(folder, "best", saved)
    point(folder, "last", saved)
    return folder


@pytest.fixture(scope="session")
def translator(run_dir):
    return load_translator(run_dir, "cpu")
