"""Whole runs of a second: their settings, their stops, and what they leave."""

import random
import signal

import pytest
import torch
from safetensors.torch import load_file

from mt import checkpoint as folder
from mt.config import TrainConfig
from mt.data.encoded import encode_corpus
from mt.mapping import from_mapping
from mt.training import trainer as room
from mt.training.run import train
from mt.training.signals import StopRequest

WORDS = "tea rice red green good books read they eat drink every day love china".split()


def write_corpus(place, seed, counts, stop):
    """Writes NAME.tsv for each name: made-up English, and as its translation the same words backwards in capitals."""
    generator = random.Random(seed)
    for name, count in counts.items():
        lines = []
        for _ in range(count):
            words = [generator.choice(WORDS) for _ in range(generator.randint(1, 9))]
            lines.append(" ".join(words) + f"{stop}\t" + " ".join(reversed(words)).upper() + f"{stop}\n")
        (place / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


def settings(corpus, run_dir, **trainer):
    return from_mapping(
        TrainConfig,
        {
            "name": "test",
            "run_dir": str(run_dir),
            "device": "cpu",
            "data": {
                "source_language": "en",
                "target_language": "de",
                "train": {"main": {"path": str(corpus / "train.tsv")}},
                "valid": {"main": {"path": str(corpus / "valid.tsv")}},
                "cache_dir": str(corpus / "cache"),
                "strip_final_stop_probability": 0.3,
            },
            "tokenizer": {"vocabulary_size": 350},
            "model": {"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1},
            "optim": {"lr": 1e-2, "warmup_steps": 4},
            "trainer": {
                "max_steps": 12, "batch_tokens": 60, "validate_every_steps": 6, "log_every_steps": 1,
                "tensorboard": False,
                **trainer,
            },
        },
    )  # fmt: skip


def made_corpus(tmp_path_factory, counts):
    """Returns the folder of a corpus for a module's tests, as write_corpus makes it, without final stops."""
    place = tmp_path_factory.mktemp("corpus")
    write_corpus(place, 1, counts, "")
    return place


def trained(config):
    """Trains; returns the settings, and the run's tokenizers and encoded training corpus."""
    train(config, [])
    tokenizers = folder.load_tokenizers(folder.Path(config.run_dir))
    return config, tokenizers, encode_corpus(config.data.train, config.data, tokenizers)


def final_tensors(run_dir):
    last = folder.pointed(run_dir, "last")
    tensors = load_file(last / "training.safetensors")
    return {**load_file(last / "model.safetensors"), **{f"training.{k}": v for k, v in tensors.items()}}


def assert_same(a, b):
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.equal(a[name], b[name])]
    assert not different


def train_until(config, step):
    """Trains until a signal would have come after `step` updates."""
    with pytest.MonkeyPatch.context() as patch:

        def fit(self, monitor, stop, fit=room.Trainer.fit):
            def number(request):  # asked for before the update whose end is to be saved
                return int(signal.SIGTERM) if self.progress.step >= step - 1 else 0

            patch.setattr(StopRequest, "number", number)
            return fit(self, monitor, stop)

        patch.setattr(room.Trainer, "fit", fit)
        result = train(config, [])
    assert not result.finished and result.steps == step
