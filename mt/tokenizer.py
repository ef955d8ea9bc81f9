"""SentencePiece tokenizers: train, save, load, encode, decode, fingerprint.

The model is a unigram language model (Kudo, 2018) or byte-pair encoding (Sennrich et al., 2016) over the text with
spaces written as ▁, as in SentencePiece (Kudo and Richardson, 2018). A character without a piece is spelled in bytes,
so no text is ever unknown, and with identity normalisation decode(encode(text)) == text, but for ▁ itself, U+FFFD and
what ends a line or controls a terminal.
"""

import hashlib
import io
import itertools
import math
import random
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece

from mt.config import TokenizerConfig
from mt.processes import Processes

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3

# Control characters and what some tools take for a line break, none of which carries meaning inside a sentence: they
# become a space, so that a vertical tab does not glue words and an output stays one line. A lone surrogate is no text.
_SEPARATORS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_RESERVED = "\u2585"  # SentencePiece skips a training sentence that contains this character
_TRAINING_CHARACTERS = 4096  # longer training lines are cut into parts; SentencePiece would skip them, or fail in BPE
_SAMPLE_CHARACTERS = 50_000_000  # of both sides; SentencePiece takes about 25 bytes for each: below 2 GB in all
_LOST_SHOWN = 40  # in a warning
_LONG_CHARACTERS = 5_000_000  # from there SentencePiece, deaf to Ctrl-C for up to a minute, has its own process
_TRAINING_THREADS = 4  # fixed, since sums of probabilities, and with them the pieces, depend on it
_SEEDING = threading.Lock()  # the seed is one for the whole process
_RULES = {"identity": "identity", "nfkc": "nfkc", "nfkc_casefold": "nfkc_cf"}


class Tokenizer:
    """One SentencePiece model; can be pickled.

    Raises ValueError where the bytes are no SentencePiece model with our special ids and byte fallback.
    """

    def __init__(self, model_bytes: bytes) -> None:
        self.model_bytes = model_bytes
        self.fingerprint = hashlib.sha256(model_bytes).hexdigest()
        try:
            self._processor = sentencepiece.SentencePieceProcessor()
            self._processor.LoadFromSerializedProto(model_bytes)  # given at birth, empty bytes are taken for no model
            self.size = self._processor.get_piece_size()
        except (RuntimeError, TypeError) as error:
            raise ValueError(f"not a SentencePiece model ({' '.join(str(error).split())})") from error
        processor = self._processor
        ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise ValueError(
                f"the SentencePiece model has pad, unk, bos, eos = {ids}; must be 0, 1, 2, 3: train it with mt"
            )
        # pieces that no text is cut into and no text is written with, which stand before a source: ids by their names
        self.tags = {processor.id_to_piece(i): i for i in range(EOS_ID + 1, self.size) if processor.is_control(i)}
        # the UTF-8 bytes that each piece writes, by id; a word's first piece begins with a space
        self.piece_bytes = [self._piece_bytes(i) for i in range(self.size)]

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        return Tokenizer, (self.model_bytes,)

    def _piece_bytes(self, i: int) -> bytes:
        """Returns the UTF-8 bytes that piece i writes; nothing for pad, unk, bos, eos and tags."""
        piece = self._processor.id_to_piece(i)
        if self._processor.is_byte(i):  # spelled <0xE9>
            return bytes([int(piece[3:-1], 16)])
        if self._processor.is_control(i) or self._processor.is_unknown(i):
            return b""
        return piece.replace("▁", " ").encode()

    def encode(self, texts: list[str], threads: int = -1) -> list[list[int]]:
        """Returns the piece ids of each text, without bos and eos; an empty text has none. threads: -1: all cores."""
        return self._processor.encode([without_separators(text) for text in texts], num_threads=threads)

    def cuts_each_word_alone(self) -> bool:
        """Returns whether the ids of words with a space between them are those of the words, one after the other.

        Whole numbers as scores are those of BPE, where no merge crosses a space unless a piece does. (The sums of
        probabilities by which a unigram model chooses are rounded, so that in a near tie other words could decide.)
        """
        scores = (self._processor.get_score(i) for i in range(self.size))
        return all(map(float.is_integer, scores)) and not any("▁" in p[1:] for p in self.pieces(list(range(self.size))))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns for each piece of `encode([text])[0]` where it begins and ends in the text, as it was written.

        Of a character that is spelled in bytes, the last byte has the place, and those before it nothing.
        """
        pieces = self._processor.encode_as_immutable_proto(without_separators(text)).pieces
        return [(piece.begin, piece.end) for piece in pieces]

    def sample(self, texts: list[str], alpha: float, seed: int) -> list[list[int]]:
        """Returns the piece ids of each text, cut at random: the same for the same seed.

        alpha: with BPE the chance that a merge is left out (Provilkov et al. 2020); with a unigram model the power of
        the probabilities of all ways to cut a text (Kudo 2018).
        """
        clean = [without_separators(text) for text in texts]
        found: list[list[int]] = []

        def draw() -> None:
            found.extend(self._processor.encode(clean, enable_sampling=True, alpha=alpha, nbest_size=-1, num_threads=1))

        # SentencePiece keeps a generator for each thread, and seeds it when the thread first draws; from 0.2.2 on it
        # adds something of the process's own to the seed, with which a resumed run would see other batches
        with _SEEDING:
            sentencepiece.set_random_generator_seed(seed % 2**32)
            thread = threading.Thread(target=draw)
            thread.start()
            thread.join()
        return found

    def decode(self, ids: list[int]) -> str:
        """Returns the text of piece ids: one line of valid UTF-8.

        Special ids, incomplete byte groups and U+FFFD are dropped; separators and control characters become a space.
        """
        written = b"".join([self.piece_bytes[i] for i in ids])
        return text_of(written.removeprefix(b" "))  # the dummy prefix, which lets a word be the same piece everywhere

    def is_byte(self, i: int) -> bool:
        """Returns whether piece i stands for one byte of a character that has no piece of its own."""
        return self._processor.is_byte(i)

    def pieces(self, ids: list[int]) -> list[str]:
        """Returns the piece of each id as SentencePiece writes it: ▁tea, <0xE9>, </s>."""
        return [self._processor.id_to_piece(i) for i in ids]


def text_of(written: bytes) -> str:
    """Returns the text of what pieces write: incomplete characters and U+FFFD are dropped, separators become spaces."""
    return _SEPARATORS.sub(" ", written.decode("utf-8", errors="ignore").replace("\ufffd", ""))


def without_separators(text: str) -> str:
    """Returns a text as `encode` reads it: what ends a line or controls a terminal is a space."""
    # no separator is printable, and this is far faster than a search
    return text if text.isprintable() else _SEPARATORS.sub(" ", text)


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of both sides; one and the same object when joint."""

    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target

    @property
    def fingerprint(self) -> str:
        """Returns the SHA-256 hex digest of both models, in order."""
        return hashlib.sha256(f"{self.source.fingerprint} {self.target.fingerprint}".encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Writes joint.model, or source.model and target.model."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.joint:
            (folder / "joint.model").write_bytes(self.source.model_bytes)
        else:
            (folder / "source.model").write_bytes(self.source.model_bytes)
            (folder / "target.model").write_bytes(self.target.model_bytes)

    @staticmethod
    def load(folder: Path) -> "TokenizerPair":
        """Returns the pair that `save` wrote. Raises ValueError naming the file that is missing or broken."""
        if (folder / "joint.model").exists():
            tokenizer = _load(folder / "joint.model")
            return TokenizerPair(tokenizer, tokenizer)
        return TokenizerPair(_load(folder / "source.model"), _load(folder / "target.model"))


def _load(path: Path) -> Tokenizer:
    try:
        return Tokenizer(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: cannot read the tokenizer ({error.strerror})") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def train_tokenizers(
    pairs: Iterable[tuple],
    config: TokenizerConfig,
    seed: int,
    tags: Sequence[str] = (),
    clean: Callable[[Sequence[tuple]], Iterable[tuple[str, str]]] = iter,
) -> TokenizerPair:
    """Returns tokenizers trained on a sample of at most config.training_sentences pairs and 50 million characters.

    The source's has a piece of its own for each tag. `clean` leaves of the sample what it should be trained on; for it
    a pair may have more than its two texts. The same arguments give the same bytes. Warns where the corpus was sampled,
    where the vocabulary is smaller than requested and where characters of the target side are lost. Raises ValueError
    for empty text and for a vocabulary too small for the characters.
    """
    sample, seen = _sample(pairs, config.training_sentences, seed)
    if seen > len(sample):
        warnings.warn(
            f"tokenizer: trained on a random sample of {len(sample)} of {seen} pairs (the limits: tokenizer."
            f"training_sentences={config.training_sentences}, {_SAMPLE_CHARACTERS} characters)",
            stacklevel=2,
        )
    sample = list(clean(sample))
    sources = [source for source, _ in sample]
    targets = [target for _, target in sample]
    if config.joint:
        joint = _train(sources + targets, config, "vocabulary_size", config.target_normalization, "training", tags)
        pair = TokenizerPair(joint, joint)
    else:
        source_size = "vocabulary_size" if config.source_vocabulary_size is None else "source_vocabulary_size"
        pair = TokenizerPair(
            _train(sources, config, source_size, config.source_normalization, "source", tags),
            _train(targets, config, "vocabulary_size", config.target_normalization, "target"),
        )
    lost = lost_characters(pair.target, targets)
    if lost:
        shown = " ".join(f"U+{ord(c):04X}" + (f" {c}" if c.isprintable() else "") for c in lost[:_LOST_SHOWN])
        more = " ..." if len(lost) > _LOST_SHOWN else ""
        warnings.warn(
            f"tokenizer: no translation can hold these {len(lost)} characters of the target text, which change with "
            f"tokenizer.target_normalization={config.target_normalization}: {shown}{more}",
            stacklevel=2,
        )
    return pair


def lost_characters(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """Returns the characters of the texts that decode(encode(...)) changes, in order; control characters aside."""
    characters = sorted(set().union(*texts))
    return [
        c
        for c in characters
        if not _SEPARATORS.match(c) and tokenizer.decode(tokenizer.encode([f"a{c}a"])[0]) != f"a{c}a"
    ]


def _sample(pairs: Iterable[tuple], size: int, seed: int) -> tuple[list[tuple], int]:
    """Returns a uniform random sample and the number of pairs seen, in one pass (reservoir sampling, Li, 1994).

    Which pair comes into the sample next is drawn by how many are passed over, so that those cost little. A sample that
    grows over _SAMPLE_CHARACTERS is halved at random, and goes on with half the size.
    """
    generator, counter = random.Random(seed), itertools.count()
    numbered = zip(pairs, counter, strict=False)
    sample: list[tuple] = []
    characters, passed, largest = 0, 0, 0.0
    while (found := next(itertools.islice(numbered, passed, None), None)) is not None:
        pair, before = found
        if len(sample) < size:
            sample.append(pair)
        else:
            place = generator.randrange(size)
            characters -= _characters(sample[place])
            sample[place] = pair
            largest *= generator.random() ** (1 / size)
        characters += _characters(pair)
        full = len(sample) == size and not largest
        while characters > _SAMPLE_CHARACTERS and len(sample) > 1:
            size = len(sample) // 2
            sample = generator.sample(sample, size)
            characters = sum(map(_characters, sample))
            full = True
        if full:  # of one random number between 0 and 1 for each pair so far, the size-th smallest
            largest = generator.betavariate(size, before + 2 - size)
        if largest:  # a pair comes in where its number is smaller
            passed = int(math.log(1 - generator.random()) / math.log1p(-largest)) if largest < 1 else 0
    return sample, next(counter)


def _characters(pair: tuple) -> int:
    return len(pair[0]) + len(pair[1])


def _training_lines(texts: Iterable[str], without: Sequence[str]) -> Iterator[str]:
    for text in texts:
        text = _SEPARATORS.sub(" ", text)
        for reserved in without:
            text = text.replace(reserved, " ")
        for start in range(0, len(text), _TRAINING_CHARACTERS):
            yield text[start : start + _TRAINING_CHARACTERS]


def _train(
    texts: list[str],
    config: TokenizerConfig,
    size_setting: str,
    normalization: str,
    side: str,
    tags: Sequence[str] = (),
) -> Tokenizer:
    requested = getattr(config, size_setting)
    options = {
        "model_type": config.algorithm,
        "vocab_size": requested,
        "hard_vocab_limit": False,  # a small corpus gives fewer pieces instead of an error
        "character_coverage": config.character_coverage,
        "byte_fallback": True,
        "normalization_rule_name": _RULES[normalization],
        "remove_extra_whitespaces": normalization != "identity",  # normalising also strips and collapses spaces
        "max_sentence_length": 1 << 20,  # bytes; longer lines would be skipped
        "num_threads": _TRAINING_THREADS,
        "pad_id": PAD_ID,
        "unk_id": UNK_ID,
        "bos_id": BOS_ID,
        "eos_id": EOS_ID,
        "control_symbols": list(tags),
        "minloglevel": 2,  # errors only
    }
    job = _Job(texts, [_RESERVED, *tags], options, side, size_setting)
    if sum(map(len, texts)) < _LONG_CHARACTERS:
        model = job.trained()
    else:
        try:
            with Processes(_Job.trained, 1) as process:
                model = next(process.map([job]))
        except ChildProcessError as error:
            raise ValueError(
                f"tokenizer: the process that trains on the {side} text has ended: is there memory enough? a smaller "
                f"tokenizer.training_sentences than {config.training_sentences} needs less"
            ) from error
    tokenizer = Tokenizer(model)
    if tokenizer.size < requested:
        warnings.warn(
            f"tokenizer.{size_setting}: requested {requested}, got {tokenizer.size}, all that the {side} text gives",
            stacklevel=3,
        )
    return tokenizer


@dataclass(frozen=True)
class _Job:
    """What SentencePiece is trained with: texts, characters they are rid of, options, and names for messages."""

    texts: list[str]
    reserved: list[str]
    options: dict[str, Any]
    side: str
    size_setting: str

    def trained(self) -> bytes:
        """Returns the model. Raises ValueError for texts without words and for too small a vocabulary."""
        no_words = f"tokenizer: the {self.side} text has no words to train on: check data.train and data.cleaning"
        if not any(line.strip() for line in _training_lines(self.texts, self.reserved)):
            raise ValueError(no_words)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_training_lines(self.texts, self.reserved), model_writer=model, **self.options
            )
        except RuntimeError as error:
            if "KeyboardInterrupt" in str(error):  # of our iterator, inside SentencePiece
                raise KeyboardInterrupt from None
            if "all_chars_count" in str(error):  # nothing but ▁, or nothing is left after normalising
                raise ValueError(no_words) from error
            needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
            if needed is None:
                raise
            tags = len(self.options["control_symbols"])
            with_tags = f", {tags} tag{'s' * (tags > 1)} (data.train.NAME.tags)" if tags else ""
            raise ValueError(
                f"tokenizer.{self.size_setting}={self.options['vocab_size']}: must be at least {needed[1]} for the "
                f"{self.side} text's characters, 256 bytes{with_tags} and 4 special pieces: raise it to {needed[1]} or "
                "lower tokenizer.character_coverage"
            ) from error
        return model.getvalue()
