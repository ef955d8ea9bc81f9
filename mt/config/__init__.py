"""Every user-visible setting, as dataclasses with units in the field comments.

They refuse values out of range, naming the key and the remedy. Only the standard library is imported here.
"""

from mt.config.data import AugmentationConfig, CleaningConfig, CorpusConfig, DataConfig, StageConfig
from mt.config.effect import decode_without_effect, without_effect
from mt.config.model import DecodeConfig, ModelConfig, TokenizerConfig
from mt.config.training import OptimConfig, TrainConfig, TrainerConfig

__all__ = [
    "AugmentationConfig",
    "CleaningConfig",
    "CorpusConfig",
    "DataConfig",
    "DecodeConfig",
    "ModelConfig",
    "OptimConfig",
    "StageConfig",
    "TokenizerConfig",
    "TrainConfig",
    "TrainerConfig",
    "decode_without_effect",
    "without_effect",
]
