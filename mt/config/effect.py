"""Settings that do nothing beside others."""

from mt.config.model import DecodeConfig
from mt.config.training import OptimConfig, TrainConfig


def without_effect(config: TrainConfig) -> list[str]:
    """Returns a message for each setting whose value does nothing beside the others.

    Whoever asks for one is refused (mt.compose); a run that was trained with one is as good as any.
    """
    tokenizer, optim, model = config.tokenizer, config.optim, config.model
    dropouts = model.dropout, model.attention_dropout, model.activation_dropout
    idle = {
        f"tokenizer.source_vocabulary_size={tokenizer.source_vocabulary_size} has no effect with tokenizer.joint=true, "
        "where both sides share tokenizer.vocabulary_size: set tokenizer.joint=false or leave it out": (
            tokenizer.joint and tokenizer.source_vocabulary_size is not None
        ),
        f"optim.muon_lr={optim.muon_lr} has no effect with optim.optimizer={optim.optimizer}: set "
        "optim.optimizer=muon or leave optim.muon_lr out": (
            optim.optimizer != "muon" and optim.muon_lr != OptimConfig.muon_lr
        ),
        f"optim.r_drop={optim.r_drop} has no effect without dropout, which makes the two passes differ: set "
        "model.dropout or leave optim.r_drop out": optim.r_drop > 0 and not any(dropouts),
    }
    return [*(message for message, holds in idle.items() if holds), *decode_without_effect(config.decode)]


def decode_without_effect(decode: DecodeConfig) -> list[str]:
    """The same of search settings alone."""
    if decode.beam_groups > 1 or decode.diversity_penalty == DecodeConfig.diversity_penalty:
        return []
    return [
        f"decode.diversity_penalty={decode.diversity_penalty} has no effect with decode.beam_groups=1: set "
        "decode.beam_groups or leave decode.diversity_penalty out"
    ]
