"""The Hydra edge: composes an experiment, returns plain dataclasses. Nobody else sees Hydra."""

from mt.compose.composing import compose, config_dir, read_config, run_hydra

__all__ = ["compose", "config_dir", "read_config", "run_hydra"]
