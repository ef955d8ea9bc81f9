"""Settings of the tokenizer, of the network and of the search: what a trained folder translates with."""

from dataclasses import dataclass
from typing import Literal

from mt.config.checks import in_range, require


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
        in_range("tokenizer", "vocabulary_size", self.vocabulary_size, 300, 2**31 - 1)
        if self.source_vocabulary_size is not None:
            in_range("tokenizer", "source_vocabulary_size", self.source_vocabulary_size, 300, 2**31 - 1)
        in_range("tokenizer", "character_coverage", self.character_coverage, 0.98, 1.0)  # SentencePiece's own range
        in_range("tokenizer", "training_sentences", self.training_sentences, 1)
        in_range("tokenizer", "bpe_dropout", self.bpe_dropout, 0, 0.9)
        in_range("tokenizer", "unigram_alpha", self.unigram_alpha or 0, 0, 10)
        require(
            not self.bpe_dropout or self.algorithm == "bpe",
            f"tokenizer.bpe_dropout={self.bpe_dropout} needs tokenizer.algorithm=bpe; unigram has unigram_alpha",
        )
        require(
            self.unigram_alpha is None or self.algorithm == "unigram",
            f"tokenizer.unigram_alpha={self.unigram_alpha} needs tokenizer.algorithm=unigram; bpe has bpe_dropout",
        )
        require(
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
            in_range("model", name, getattr(self, name), 1)
        require(
            self.d_model % self.n_heads == 0,
            f"model.d_model={self.d_model} must be a multiple of model.n_heads={self.n_heads}",
        )
        require(self.d_model % 2 == 0, f"model.d_model={self.d_model}: must be even")
        in_range("model", "norm_epsilon", self.norm_epsilon, 1e-12, 1e-2)
        require(
            self.positions != "rotary" or self.d_model // self.n_heads % 2 == 0,
            f"model.positions=rotary needs an even head size; d_model/n_heads is {self.d_model // self.n_heads}",
        )
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            in_range("model", name, getattr(self, name), 0, 0.95)


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
        in_range("decode", "beam_size", self.beam_size, 1, 1000)
        in_range("decode", "length_penalty", self.length_penalty, 0, 10)
        in_range("decode", "lookahead", self.lookahead, 0, 1)
        in_range("decode", "margin", self.margin, 0)
        in_range("decode", "coverage_penalty", self.coverage_penalty, 0, 10)
        in_range("decode", "no_repeat_ngram_size", self.no_repeat_ngram_size, 0)
        in_range("decode", "repetition_penalty", self.repetition_penalty, 1, 100)
        in_range("decode", "beam_groups", self.beam_groups, 1, self.beam_size)
        require(
            self.beam_size % self.beam_groups == 0,
            f"decode.beam_size={self.beam_size} must be a multiple of decode.beam_groups={self.beam_groups}",
        )
        in_range("decode", "diversity_penalty", self.diversity_penalty, 0, 100)
        in_range("decode", "min_length_ratio", self.min_length_ratio, 0)
        require(
            self.min_length_ratio <= self.max_length_ratio,
            f"decode.min_length_ratio={self.min_length_ratio} must be at most decode.max_length_ratio="
            f"{self.max_length_ratio}",
        )
        in_range("decode", "max_length_ratio", self.max_length_ratio, 0, 1000)
        in_range("decode", "max_length_offset", self.max_length_offset, 1, 1_000_000)
        in_range("decode", "max_source_tokens", self.max_source_tokens, 2, 1_000_000)
        in_range("decode", "batch_tokens", self.batch_tokens, 1)
