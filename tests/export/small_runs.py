"""Trained folders with random weights, in any architecture, for the tests of exports."""

import random
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import torch

from mt.checkpoint import create_run, point, save_checkpoint
from mt.config import CorpusConfig, DecodeConfig, ModelConfig, TokenizerConfig, TrainConfig
from mt.model.transformer import Transformer
from mt.tokenizer import EOS_ID, TokenizerPair, train_tokenizers

WORDS = "they read good books every day and drink green tea I love china rice is never late".split()
TARGET_WORDS = "sie lesen gute Bücher jeden Tag und trinken grünen Tee ich liebe China Reis nie spät".split()
MODEL = ModelConfig(d_model=16, d_ff=24, n_heads=2, encoder_layers=2, decoder_layers=1, tying="none")


def sentences(count: int, words: list[str] = WORDS, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(words, k=generator.randint(1, 12))) for _ in range(count)]


def make_tokenizers(joint: bool) -> TokenizerPair:
    pairs = zip(sentences(200), sentences(200, TARGET_WORDS), strict=True)
    with warnings.catch_warnings(action="ignore"):  # so little text gives fewer pieces
        return train_tokenizers(pairs, TokenizerConfig(vocabulary_size=400, joint=joint), 1)


def random_model(config: ModelConfig, tokenizers: TokenizerPair, sharpness: float = 4.0) -> Transformer:
    """Returns a model whose outputs depend on its input and, mostly, end."""
    torch.manual_seed(7)
    model = Transformer(config, tokenizers.source.size, tokenizers.target.size).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias") or name == "output_bias":  # zero until they are trained
                parameter.copy_(0.2 * torch.randn_like(parameter))
            elif name.endswith("norm.weight"):
                parameter.copy_(1 + 0.2 * torch.randn_like(parameter))
        model.output_table *= sharpness
        model.output_table[EOS_ID] *= 2
        model.output_table[:EOS_ID] *= 0.1  # pad, unk and bos are as unlikely as training makes them
    return model


def save_run(run_dir: Path, model: Transformer, tokenizers: TokenizerPair, **decode: float) -> Path:
    """Returns a run folder with this model, twenty validation pairs in a file beside it, and no results."""
    pairs = zip(sentences(20, seed=5), sentences(20, TARGET_WORDS, seed=5), strict=True)
    valid = run_dir.parent / "valid.tsv"
    valid.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    config = TrainConfig(name=run_dir.name, model=model.config, decode=DecodeConfig(**{"beam_size": 3, **decode}))
    config = replace(config, tokenizer=TokenizerConfig(joint=tokenizers.joint))
    config.data.source_language, config.data.target_language = "en", "de"
    config.data.train = {"books": CorpusConfig(path="books.tsv")}
    config.data.valid = {"main": CorpusConfig(path=str(valid))}
    create_run(run_dir, config, tokenizers, [])
    state = {
        "tokenizer_fingerprint": tokenizers.fingerprint,
        "metrics": {},
        "finished": True,
        "model": asdict(model.config),
    }
    point(run_dir, "best", save_checkpoint(run_dir, 5, model.weights(), {}, state))
    return run_dir
