"""A trained folder of a model that was never trained."""

from pathlib import Path

from mt.checkpoint import create_run, point, save_checkpoint
from mt.config import TrainConfig
from mt.model.transformer import Transformer
from mt.tokenizer import TokenizerPair


def save_untrained(folder: Path, config: TrainConfig, tokenizers: TokenizerPair, model: Transformer) -> None:
    """Writes a finished run of one update, whose checkpoint is its best and its last."""
    create_run(folder, config, tokenizers, [])
    state = {"tokenizer_fingerprint": tokenizers.fingerprint, "metrics": {}, "finished": True}
    saved = save_checkpoint(folder, 1, model.state_dict(), {}, state)
    point(folder, "best", saved)
    point(folder, "last", saved)
