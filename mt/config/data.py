"""Settings of corpora, of their cleaning, and of how they are mixed."""

from dataclasses import dataclass, field
from typing import Any, Literal

from mt.config.checks import in_range, require


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
        require(
            sum(kinds) == 1,
            "a corpus needs exactly one of: source with target (two text files), path, dataset or test_set; "
            f"got source={self.source!r}, target={self.target!r}, path={self.path!r}, dataset={self.dataset!r}, "
            f"test_set={self.test_set!r}: set the others to null",
        )
        require(
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
        in_range("data.cleaning", "max_characters", self.max_characters, 1)
        in_range("data.cleaning", "max_length_ratio", self.max_length_ratio, 0)
        in_range("data.cleaning", "min_script_share", self.min_script_share, 0, 1)
        in_range("data.cleaning", "min_language_confidence", self.min_language_confidence, 0, 1)
        require(
            not self.min_language_confidence or self.language_model is not None,
            f"data.cleaning.min_language_confidence={self.min_language_confidence} needs data.cleaning.language_model: "
            "a file such as lid.176.ftz of fasttext.cc/docs/en/language-identification.html",
        )
        require(
            self.language_model is None or self.min_language_confidence > 0,
            f"data.cleaning.language_model={self.language_model} has no effect without "
            "data.cleaning.min_language_confidence: set it, or leave the model out",
        )
        in_range("data.cleaning", "max_tokens", self.max_tokens, 1)
        in_range("data.cleaning", "max_token_ratio", self.max_token_ratio, 0)


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
            in_range("data.augmentation", name, value, 0, 1)


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
        in_range("data", "strip_final_stop_probability", p, 0, 1)
        in_range("data", "temperature", self.temperature, 0.01, 1000)
        for name, corpus in self.train.items():
            in_range(f"data.train.{name}", "weight", corpus.weight or 0, 0, 1e9)
            in_range(f"data.train.{name}", "upsample", corpus.upsample, 0.001, 1e6)
        for split in ("valid", "test"):
            for name, corpus in getattr(self, split).items():
                for setting, unused in (("weight", None), ("upsample", 1.0), ("cleaning", {})):
                    value = getattr(corpus, setting)
                    require(
                        value == unused,
                        f"data.{split}.{name}.{setting}={value}: is of training corpora alone: remove it",
                    )
        for name, stage in self.stages.items():
            in_range(f"data.stages.{name}", "from_step", stage.from_step, 1)
            require(
                bool(stage.weights) != (stage.temperature is not None),
                f"data.stages.{name}: needs either weights, such as data.stages.{name}.weights.main=1, or temperature",
            )
            temperature = 1 if stage.temperature is None else stage.temperature
            in_range(f"data.stages.{name}", "temperature", temperature, 0.01, 1000)
            for corpus, weight in stage.weights.items():
                in_range(f"data.stages.{name}.weights", corpus, weight, 0, 1e9)
        in_range("data", "processes", 1 if self.processes is None else self.processes, 1, 1024)
