"""Settings of the optimizer, of the training loop, and of a run as a whole."""

from dataclasses import dataclass, field
from typing import Literal

from mt.config.checks import in_range, require
from mt.config.data import DataConfig
from mt.config.model import DecodeConfig, ModelConfig, TokenizerConfig


@dataclass
class OptimConfig:
    """Optimizer, learning-rate schedule and loss."""

    optimizer: Literal["adamw", "muon"] = "adamw"  # muon: hidden matrices by Muon, all else by AdamW
    lr: float = 1e-3  # peak learning rate (noam: the factor in front of the paper's formula) of AdamW
    muon_lr: float = 0.02  # peak learning rate of Muon
    schedule: Literal["noam", "inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    warmup_steps: int = 4000  # updates
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    weight_decay: float = 0.0
    clip_norm: float = 1.0  # largest gradient norm; 0: no clipping
    label_smoothing: float = 0.1
    # alpha of R-Drop: two passes with different dropout are drawn together, for twice the work; 0: off, 5: the paper's
    r_drop: float = 0.0

    def __post_init__(self) -> None:
        in_range("optim", "lr", self.lr, 0, 1e6)
        in_range("optim", "muon_lr", self.muon_lr, 0, 1e6)
        in_range("optim", "warmup_steps", self.warmup_steps, 0)
        for name in ("beta1", "beta2"):
            in_range("optim", name, getattr(self, name), 0, 0.99999)
        in_range("optim", "eps", self.eps, 1e-30, 1)  # smaller is 0 in float32, and 0/0 is not a number
        in_range("optim", "weight_decay", self.weight_decay, 0, 1e6)
        in_range("optim", "clip_norm", self.clip_norm, 0)
        in_range("optim", "label_smoothing", self.label_smoothing, 0, 0.9)
        in_range("optim", "r_drop", self.r_drop, 0, 1000)


@dataclass
class TrainerConfig:
    """The training loop. A run ends at the first limit that it reaches; at least one limit must be set."""

    seed: int = 1
    max_steps: int | None = 100_000  # updates
    max_epochs: float | None = None
    max_minutes: float | None = None  # wall clock in training, validation included, summed over resumed sessions
    max_session_minutes: float | None = None  # wall clock of one session; then it saves and stops as after a signal
    batch_tokens: int = 4096  # tokens of the longer side per micro-batch
    # on a GPU: takes the largest batch_tokens that memory holds, less a tenth, and stores it as the run's batch_tokens
    # (not tried on a GPU); for repeating a run from its config.yaml set it to false
    fit_batch: bool = False
    accumulate_batches: int = 1  # micro-batches per update and rank
    # updates whose batches a thread prepares ahead; null: 2 on a GPU, 0 on a CPU, which it would slow down
    prefetch_updates: int | None = None
    precision: Literal["auto", "float32", "bf16", "fp16"] = "auto"  # auto: bf16 on a GPU that has it, else float32
    # torch.compile; pays off on a GPU only, and has not been tried on one. On a GPU in half precision without
    # attention_dropout batches are filled up to one size, so that one graph serves the run
    compile: bool = False
    validate_every_steps: int = 1000  # updates
    validate_max_sentences: int = 2000
    validation_beam_size: int = 1
    best_metric: Literal["bleu", "chrf", "loss"] = "bleu"
    early_stopping_patience: int | None = None  # validations without improvement
    save_every_minutes: float | None = 10.0  # wall clock between saves, besides those at validations; null: off
    save_every_steps: int | None = None  # updates between saves, the same way
    keep_last_checkpoints: int = 2  # besides the best and the last
    keep_best_checkpoints: int = 1  # by best_metric
    # ranks that hold weights, gradients and optimizer state together (FSDP2), for a model that does not fit; 1: each
    # rank holds all (DDP); null: all together; N: groups of N neighbours, such as the GPUs of a machine
    shard_ranks: int | None = 1
    # layers are computed again in the backward pass, instead of kept: less memory, a third more work
    checkpoint_activations: bool = False
    bf16_gradients: bool = False  # ranks exchange gradients in bf16: half the bytes, three digits
    distributed_timeout_seconds: float = 600.0  # a rank that does not answer for so long ends the others
    ema_decay: float = 0.0  # moving average of the weights, used for validation and as result; 0: off
    # updates in a row with non-finite gradients before the run stops; a GPU tells of each one update later
    max_skipped_steps: int = 100
    log_every_steps: int = 50
    shuffle_pool_batches: int = 64  # sentences of about this many batches are sorted by length together
    tensorboard: bool = True

    def __post_init__(self) -> None:
        require(
            any(limit is not None for limit in (self.max_steps, self.max_epochs, self.max_minutes)),
            "trainer: set at least one of max_steps, max_epochs, max_minutes",
        )
        for name in (
            "max_steps", "max_epochs", "max_minutes", "max_session_minutes", "early_stopping_patience",
            "save_every_steps", "save_every_minutes",
        ):  # fmt: skip
            value = getattr(self, name)
            require(value is None or value > 0, f"trainer.{name}={value}: must be greater than 0, or null for no limit")
        for name in (
            "batch_tokens", "accumulate_batches", "validate_every_steps", "validate_max_sentences", "log_every_steps",
            "keep_last_checkpoints", "keep_best_checkpoints", "max_skipped_steps",
            "shuffle_pool_batches",
        ):  # fmt: skip
            in_range("trainer", name, getattr(self, name), 1, 2**31 - 1)
        in_range("trainer", "shard_ranks", 1 if self.shard_ranks is None else self.shard_ranks, 1, 2**31 - 1)
        require(
            not (self.compile and self.checkpoint_activations),
            "trainer.checkpoint_activations=true: is for uncompiled models: set trainer.compile=false",
        )
        for name in ("fit_batch", "compile"):
            require(
                self.shard_ranks == 1 or not getattr(self, name),
                f"trainer.{name}=true: is for a model that each rank holds all of: set trainer.shard_ranks=1, or "
                f"trainer.{name}=false",
            )
        in_range("trainer", "validation_beam_size", self.validation_beam_size, 1, 1000)
        in_range("trainer", "prefetch_updates", self.prefetch_updates or 0, 0, 1000)
        in_range("trainer", "distributed_timeout_seconds", self.distributed_timeout_seconds, 1, 1e6)
        in_range("trainer", "seed", self.seed, 0, 2**63 - 1)
        for name in ("max_steps", "max_epochs", "max_minutes"):
            in_range("trainer", name, getattr(self, name) or 0, 0, 1e9)
        in_range("trainer", "ema_decay", self.ema_decay, 0, 0.99999)


@dataclass
class TrainConfig:
    """One training run: everything that `mt train` composes and stores as config.yaml in the run folder."""

    name: str = "default"  # the run's name; experiments set it to their own
    run_dir: str | None = None  # null: runs/NAME; relative to the folder the command was started in
    device: str = "auto"  # auto (cuda, then mps, else cpu), cpu, cuda, cuda:N, mps (not tried)
    resume: bool = True  # continue the unfinished run in run_dir; false: refuse a folder that holds a run
    init_from: str | None = None  # a trained folder whose weights and tokenizer start this run (fine-tuning)
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        require(
            self.model.tying != "three_way" or self.tokenizer.joint,
            "model.tying=three_way needs one vocabulary: set tokenizer.joint=true or model.tying=decoder",
        )
        require(
            bool(self.name.strip(". ")) and "/" not in self.name,
            f"name={self.name!r}: must be a name without '/' that is more than dots: a run's folder is runs/NAME",
        )
