"""Every user-visible setting, as dataclasses with units in the field comments.

They refuse values out of range, naming the key and the remedy. Only the standard library is imported here.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _in_range(owner: str, name: str, value: float, low: float, high: float = math.inf) -> None:
    rule = f"at least {low}" if math.isinf(high) else f"between {low} and {high}"
    _require(low <= value <= high, f"{owner}.{name}={value}: must be {rule}")


@dataclass
class CorpusConfig:
    """One parallel corpus: two text files, files that hold both sides, a dataset or a public test set by name."""

    source: str | None = None  # text file, one source sentence a line (.gz, .xz, .zst too); together with target
    target: str | None = None  # text file, one target sentence a line (.gz, .xz, .zst too)
    path: str | None = None  # a file that holds both sides (docs/corpora.md lists the formats), a folder or a pattern
    dataset: str | None = None  # a Hugging Face dataset: name on the hub or a local folder
    dataset_config: str | None = None  # the dataset's configuration, e.g. "de-en"
    split: str = "train"  # the dataset's split
    # reads the dataset from where it is instead of downloading it whole; training pairs are read and encoded in parts
    # while they are trained on, so that it may be larger than the disk
    streaming: bool = False
    # where the source side is: a column's number from 0 (TSV: 0), the name of a key or column, or a language code as
    # the file has it (default: the language)
    source_field: str | None = None
    target_field: str | None = None  # the same for the target side (TSV: 1)
    test_set: str | None = None  # one that sacreBLEU knows, such as wmt14, with its first reference
    include_fuzzy: bool = False  # also what gettext marks fuzzy, and XLIFF as to be reviewed or as a machine's
    # share of the training pairs, relative to the weights of the other corpora: all have one, or none; 0: not read
    weight: float | None = None
    upsample: float = 1.0  # how often an epoch reads it, where there are no weights; 0.5: a half, then the other
    # pieces of their own before each source, such as "<2de> <back>"; of validation and test: null is decode.tags
    tags: str | None = None
    source_language: str | None = None  # of this corpus, null: data.source_language
    target_language: str | None = None
    cleaning: dict[str, Any] = field(default_factory=dict)  # settings of data.cleaning that this corpus has otherwise

    def __post_init__(self) -> None:
        text = self.source is not None or self.target is not None
        kinds = [text, *(other is not None for other in (self.path, self.dataset, self.test_set))]
        _require(
            sum(kinds) == 1,
            "a corpus needs exactly one of: source with target (two text files), path, dataset or test_set; "
            f"got source={self.source!r}, target={self.target!r}, path={self.path!r}, dataset={self.dataset!r}, "
            f"test_set={self.test_set!r}: set the others to null",
        )
        _require(
            (self.source is None) == (self.target is None),
            f"a corpus of two text files needs both source and target; got source={self.source!r}, target="
            f"{self.target!r}",
        )


@dataclass
class CleaningConfig:
    """How training pairs are repaired and which are dropped, in the order of these settings; docs/cleaning.md explains.

    Every drop is counted by its reason, every repair by its kind. Sides are dropped together.
    """

    # columns of .tsv (numbers from 0), .csv, .parquet or .jsonl (names), each with the least number that keeps a pair
    min_scores: dict[str, float] = field(default_factory=dict)
    # what comes after the repairs judges repaired text
    html_entities: Literal["keep", "repair", "drop"] = "keep"  # &quot; and the like, which repairing decodes
    mojibake: Literal["keep", "repair", "drop"] = "keep"  # "schÃ¶n" for "schön"; needs ftfy, as mt[cleaning] has it
    # repairing makes them a space; those that cannot be seen (soft hyphen, zero-width space, ...) it leaves out
    control_characters: Literal["keep", "repair", "drop"] = "keep"
    max_characters: int = 2000  # per side
    max_length_ratio: float = 9.0  # longer side / shorter side in characters, where the longer has 20 or more; 0: off
    drop_identical: bool = False  # source equal to target
    drop_replacement_characters: bool = False  # U+FFFD, which stands where a character was lost
    drop_bracket_mismatch: bool = False  # other numbers of round, square or curly brackets on the two sides
    drop_number_mismatch: bool = False  # other numbers of two or more digits on the two sides
    min_script_share: float = 0.0  # of a side's letters that belong to its language's scripts; 0: off
    # pairs of which a side (the source, both sides) stands in validation or test, whatever its case, punctuation and
    # spaces; none: off
    drop_held_out: Literal["either_side", "source", "both_sides", "none"] = "either_side"
    drop_duplicates: bool = False  # pairs seen before, by hash
    drop_near_duplicates: bool = False  # pairs seen before but for case, punctuation, spaces and forms of characters
    # probability, by language_model, of a side's being in its language, where it has 20 or more letters; 0: off
    min_language_confidence: float = 0.0
    language_model: str | None = None  # a file: fastText's lid.176.ftz or lid.176.bin; needs mt[cleaning]
    max_tokens: int = 256  # per side, after tokenising
    max_token_ratio: float = 0.0  # longer side / shorter side in tokens, where the longer has 10 or more; 0: off

    def __post_init__(self) -> None:
        _in_range("data.cleaning", "max_characters", self.max_characters, 1)
        _in_range("data.cleaning", "max_length_ratio", self.max_length_ratio, 0)
        _in_range("data.cleaning", "min_script_share", self.min_script_share, 0, 1)
        _in_range("data.cleaning", "min_language_confidence", self.min_language_confidence, 0, 1)
        _require(
            not self.min_language_confidence or self.language_model is not None,
            f"data.cleaning.min_language_confidence={self.min_language_confidence} needs data.cleaning.language_model: "
            "a file such as lid.176.ftz of fasttext.cc/docs/en/language-identification.html",
        )
        _require(
            self.language_model is None or self.min_language_confidence > 0,
            f"data.cleaning.language_model={self.language_model} has no effect without "
            "data.cleaning.min_language_confidence: set it, or leave the model out",
        )
        _in_range("data.cleaning", "max_tokens", self.max_tokens, 1)
        _in_range("data.cleaning", "max_token_ratio", self.max_token_ratio, 0)


@dataclass
class StageConfig:
    """From an update on other shares of the corpora, by weights or by size."""

    from_step: int = 0  # updates that come before, those left out for their gradients counted
    weights: dict[str, float] = field(default_factory=dict)  # by corpus; one without a weight is not read
    temperature: float | None = None  # as data.temperature, instead of weights


@dataclass
class AugmentationConfig:
    """Chances that a training pair, each time it is seen, is changed so that the model knows such text.

    docs/mixing.md shows each change.
    """

    lowercase_probability: float = 0.0  # the source is in lower case
    uppercase_probability: float = 0.0  # both sides are in capitals
    typo_probability: float = 0.0  # one in 20 letters of the source, or one, is wrong, missing, doubled or swapped
    punctuation_probability: float = 0.0  # the source loses its punctuation
    merging_probability: float = 0.0  # the pair goes on with another one of its corpus
    placeholder_probability: float = 0.0  # a number or name that stands on both sides is a placeholder on both

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _in_range("data.augmentation", name, value, 0, 1)


@dataclass
class DataConfig:
    """Corpora by split; each split maps names of your choice to corpora, which are read one after the other."""

    source_language: str = "en"  # language codes choose the BLEU tokenizer and the default fields of JSONL and datasets
    target_language: str = "zh"
    train: dict[str, CorpusConfig] = field(default_factory=dict)
    valid: dict[str, CorpusConfig] = field(default_factory=dict)
    test: dict[str, CorpusConfig] = field(default_factory=dict)
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    # encoded corpora, one folder per fingerprint; null: data/cache, or RUN/cache where that cannot be written
    cache_dir: str | None = None
    processes: int | None = None  # that encode corpora side by side; null: one for each core
    # chance that a training pair ending in a full stop on both sides loses both, so that the model knows text without
    strip_final_stop_probability: float = 0.0
    # shares of the training corpora are as size^(1/temperature): above 1 small ones are read more often
    temperature: float = 1.0
    stages: dict[str, StageConfig] = field(default_factory=dict)  # by names of your choice; docs/mixing.md
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)

    def __post_init__(self) -> None:
        p = self.strip_final_stop_probability
        _in_range("data", "strip_final_stop_probability", p, 0, 1)
        _in_range("data", "temperature", self.temperature, 0.01, 1000)
        for name, corpus in self.train.items():
            _in_range(f"data.train.{name}", "weight", corpus.weight or 0, 0, 1e9)
            _in_range(f"data.train.{name}", "upsample", corpus.upsample, 0.001, 1e6)
        for split in ("valid", "test"):
            for name, corpus in getattr(self, split).items():
                for setting, unused in (("weight", None), ("upsample", 1.0), ("cleaning", {})):
                    value = getattr(corpus, setting)
                    _require(
                        value == unused,
                        f"data.{split}.{name}.{setting}={value}: is of training corpora alone: remove it",
                    )
        for name, stage in self.stages.items():
            _in_range(f"data.stages.{name}", "from_step", stage.from_step, 1)
            _require(
                bool(stage.weights) != (stage.temperature is not None),
                f"data.stages.{name}: needs either weights, such as data.stages.{name}.weights.main=1, or temperature",
            )
            _in_range(f"data.stages.{name}", "temperature", stage.temperature or 1, 0.01, 1000)
            for corpus, weight in stage.weights.items():
                _in_range(f"data.stages.{name}.weights", corpus, weight, 0, 1e9)
        _in_range("data", "processes", self.processes or 1, 1, 1024)


@dataclass
class TokenizerConfig:
    """SentencePiece models, trained on the cleaned training pairs and stored in the run."""

    algorithm: Literal["unigram", "bpe"] = "unigram"
    joint: bool = True  # one model for both sides (needed for three-way tying)
    vocabulary_size: int = 8000  # pieces, of the joint or the target model; shrinks with a warning on a small corpus
    source_vocabulary_size: int | None = None  # pieces, with joint=false; null: vocabulary_size
    source_normalization: Literal["identity", "nfkc", "nfkc_casefold"] = "identity"  # joint: must equal the target's
    target_normalization: Literal["identity", "nfkc"] = "identity"
    character_coverage: float = 0.9995  # share of characters that get a piece; the rest is spelled in bytes
    # chance that a merge is left out of a training sentence, anew each time it is seen (algorithm=bpe); 0: off
    bpe_dropout: float = 0.0
    # training sentences are cut anew each time, drawn from all ways by their probability^alpha (unigram); null: off
    unigram_alpha: float | None = None
    training_sentences: int = 1_000_000  # per side at most, and 50 million characters: a seeded random sample

    def __post_init__(self) -> None:
        _in_range("tokenizer", "vocabulary_size", self.vocabulary_size, 300, 2**31 - 1)
        if self.source_vocabulary_size is not None:
            _in_range("tokenizer", "source_vocabulary_size", self.source_vocabulary_size, 300, 2**31 - 1)
        _in_range("tokenizer", "character_coverage", self.character_coverage, 0.98, 1.0)  # SentencePiece's own range
        _in_range("tokenizer", "training_sentences", self.training_sentences, 1)
        _in_range("tokenizer", "bpe_dropout", self.bpe_dropout, 0, 0.9)
        _in_range("tokenizer", "unigram_alpha", self.unigram_alpha or 0, 0, 10)
        _require(
            not self.bpe_dropout or self.algorithm == "bpe",
            f"tokenizer.bpe_dropout={self.bpe_dropout} needs tokenizer.algorithm=bpe; unigram has unigram_alpha",
        )
        _require(
            self.unigram_alpha is None or self.algorithm == "unigram",
            f"tokenizer.unigram_alpha={self.unigram_alpha} needs tokenizer.algorithm=unigram; bpe has bpe_dropout",
        )
        _require(
            not self.joint or self.source_normalization == self.target_normalization,
            f"tokenizer.joint=true needs equal normalisation on both sides; got source_normalization="
            f"{self.source_normalization}, target_normalization={self.target_normalization}: set joint=false",
        )


@dataclass
class ModelConfig:
    """The Transformer's shape. Sizes are in units (dimensions) of a token's vector."""

    d_model: int = 256
    d_ff: int = 1024
    n_heads: int = 4
    encoder_layers: int = 4
    decoder_layers: int = 4
    norm_position: Literal["pre", "post"] = "pre"
    norm: Literal["layer_norm", "rms_norm"] = "layer_norm"
    norm_epsilon: float = 1e-6  # added to the variance
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    # sinusoidal: wavelengths from 2 pi to 10000 * 2 pi; sinusoidal_paper: the last one shorter than that, as in the
    # paper and in Marian
    positions: Literal["sinusoidal", "sinusoidal_paper", "rotary"] = "sinusoidal"
    tying: Literal["three_way", "decoder", "none"] = "three_way"  # which embeddings share weights with the output layer
    output_bias: bool = False  # a bias for each target piece, as Marian has
    dropout: float = 0.1  # on embeddings and on the output of every sublayer
    attention_dropout: float = 0.0  # on attention weights
    activation_dropout: float = 0.0  # inside the feed-forward layer

    def __post_init__(self) -> None:
        for name in ("d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers"):
            _in_range("model", name, getattr(self, name), 1)
        _require(
            self.d_model % self.n_heads == 0,
            f"model.d_model={self.d_model} must be a multiple of model.n_heads={self.n_heads}",
        )
        _require(self.d_model % 2 == 0, f"model.d_model={self.d_model}: must be even")
        _in_range("model", "norm_epsilon", self.norm_epsilon, 1e-12, 1e-2)
        _require(
            self.positions != "rotary" or self.d_model // self.n_heads % 2 == 0,
            f"model.positions=rotary needs an even head size; d_model/n_heads is {self.d_model // self.n_heads}",
        )
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            _in_range("model", name, getattr(self, name), 0, 0.95)


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
        _in_range("optim", "lr", self.lr, 0, 1e6)
        _in_range("optim", "muon_lr", self.muon_lr, 0, 1e6)
        _in_range("optim", "warmup_steps", self.warmup_steps, 0)
        for name in ("beta1", "beta2"):
            _in_range("optim", name, getattr(self, name), 0, 0.99999)
        _in_range("optim", "eps", self.eps, 1e-30, 1)  # smaller is 0 in float32, and 0/0 is not a number
        _in_range("optim", "weight_decay", self.weight_decay, 0, 1e6)
        _in_range("optim", "clip_norm", self.clip_norm, 0)
        _in_range("optim", "label_smoothing", self.label_smoothing, 0, 0.9)
        _in_range("optim", "r_drop", self.r_drop, 0, 1000)


@dataclass
class DecodeConfig:
    """Search settings for validation, evaluation and translation."""

    beam_size: int = 5  # 1 is greedy search
    length_penalty: float = 1.0  # alpha in score = sum of log probabilities / length^alpha; length counts </s>
    lookahead: float = 0.2  # share of the length left that a live hypothesis may yet fill at no cost; 1: exact search
    margin: float = 4.0  # a hypothesis so many nats less likely than the best (or n-th best) is given up; 0: never
    coverage_penalty: float = 0.0  # beta: among finished hypotheses those win that looked at all of the source; 0: off
    no_repeat_ngram_size: int = 0  # no run of so many tokens occurs twice in an output; 0: off
    repetition_penalty: float = 1.0  # multiplies the log probabilities of tokens that the output holds; 1: off
    beam_groups: int = 1  # diverse beam search: the beam is searched in so many groups that avoid each other's tokens
    diversity_penalty: float = 0.5  # nats for each hypothesis of earlier groups with the same token in the same place
    min_length_ratio: float = 0.0  # shortest output = ratio * source tokens; 0: off
    max_length_ratio: float = 2.0  # longest output = ratio * source tokens + max_length_offset
    max_length_offset: int = 10
    max_source_tokens: int = 1024  # longer sources are cut, and flagged
    batch_tokens: int = 16384  # source tokens times beam (or samples) in one search batch
    tags: str = ""  # tags that the model was trained with, put before each source, such as "<2de>"

    def __post_init__(self) -> None:
        _in_range("decode", "beam_size", self.beam_size, 1, 1000)
        _in_range("decode", "length_penalty", self.length_penalty, 0, 10)
        _in_range("decode", "lookahead", self.lookahead, 0, 1)
        _in_range("decode", "margin", self.margin, 0)
        _in_range("decode", "coverage_penalty", self.coverage_penalty, 0, 10)
        _in_range("decode", "no_repeat_ngram_size", self.no_repeat_ngram_size, 0)
        _in_range("decode", "repetition_penalty", self.repetition_penalty, 1, 100)
        _in_range("decode", "beam_groups", self.beam_groups, 1, self.beam_size)
        _require(
            self.beam_size % self.beam_groups == 0,
            f"decode.beam_size={self.beam_size} must be a multiple of decode.beam_groups={self.beam_groups}",
        )
        _in_range("decode", "diversity_penalty", self.diversity_penalty, 0, 100)
        _in_range("decode", "min_length_ratio", self.min_length_ratio, 0)
        _require(
            self.min_length_ratio <= self.max_length_ratio,
            f"decode.min_length_ratio={self.min_length_ratio} must be at most decode.max_length_ratio="
            f"{self.max_length_ratio}",
        )
        _in_range("decode", "max_length_ratio", self.max_length_ratio, 0, 1000)
        _in_range("decode", "max_length_offset", self.max_length_offset, 1, 1_000_000)
        _in_range("decode", "max_source_tokens", self.max_source_tokens, 2, 1_000_000)
        _in_range("decode", "batch_tokens", self.batch_tokens, 1)


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
        _require(
            any(limit is not None for limit in (self.max_steps, self.max_epochs, self.max_minutes)),
            "trainer: set at least one of max_steps, max_epochs, max_minutes",
        )
        for name in (
            "max_steps", "max_epochs", "max_minutes", "max_session_minutes", "early_stopping_patience",
            "save_every_steps", "save_every_minutes",
        ):  # fmt: skip
            value = getattr(self, name)
            _require(
                value is None or value > 0, f"trainer.{name}={value}: must be greater than 0, or null for no limit"
            )
        for name in (
            "batch_tokens", "accumulate_batches", "validate_every_steps", "validate_max_sentences", "log_every_steps",
            "keep_last_checkpoints", "keep_best_checkpoints", "max_skipped_steps",
            "shuffle_pool_batches",
        ):  # fmt: skip
            _in_range("trainer", name, getattr(self, name), 1, 2**31 - 1)
        _in_range("trainer", "shard_ranks", self.shard_ranks or 1, 1, 2**31 - 1)
        _require(
            not (self.compile and self.checkpoint_activations),
            "trainer.checkpoint_activations=true: is for uncompiled models: set trainer.compile=false",
        )
        for name in ("fit_batch", "compile"):
            _require(
                self.shard_ranks == 1 or not getattr(self, name),
                f"trainer.{name}=true: is for a model that each rank holds all of: set trainer.shard_ranks=1, or "
                f"trainer.{name}=false",
            )
        _in_range("trainer", "validation_beam_size", self.validation_beam_size, 1, 1000)
        _in_range("trainer", "prefetch_updates", self.prefetch_updates or 0, 0, 1000)
        _in_range("trainer", "distributed_timeout_seconds", self.distributed_timeout_seconds, 1, 1e6)
        _in_range("trainer", "seed", self.seed, 0, 2**63 - 1)
        for name in ("max_steps", "max_epochs", "max_minutes"):
            _in_range("trainer", name, getattr(self, name) or 0, 0, 1e9)
        _in_range("trainer", "ema_decay", self.ema_decay, 0, 0.99999)


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
        _require(
            self.model.tying != "three_way" or self.tokenizer.joint,
            "model.tying=three_way needs one vocabulary: set tokenizer.joint=true or model.tying=decoder",
        )
        _require(
            bool(self.name.strip(". ")) and "/" not in self.name,
            f"name={self.name!r}: must be a name without '/' that is more than dots: a run's folder is runs/NAME",
        )


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
