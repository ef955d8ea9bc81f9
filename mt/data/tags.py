"""Tags: pieces of their own that stand before a source and tell the model its corpus, domain or target language."""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from mt.config import CorpusConfig, DataConfig
from mt.mapping import suggest
from mt.tokenizer import Tokenizer

# in brackets, so that training the tokenizer can leave them out of its text; not the names of other pieces
_TAG = re.compile(r"(?!<(pad|unk|s|/s|0x[0-9A-F]{2})>)(<[^<>\s▁]+>|>>[^<>\s▁]+<<)")


def training_tags(data: DataConfig) -> list[str]:
    """Returns the tags of all training corpora, each once, in order.

    Raises ValueError for a tag of another form, and for one of validation or test alone.
    """
    found: list[str] = []
    for name, corpus in data.train.items():
        for tag in (corpus.tags or "").split():
            if not _TAG.fullmatch(tag):
                raise ValueError(
                    f"data.train.{name}.tags={corpus.tags}: {tag}: must be written as <2de> or >>de<<, and not be the "
                    "name of another piece, such as <s>"
                )
            found.append(tag)
    found = list(dict.fromkeys(found))
    for split in ("valid", "test"):
        for name, corpus in getattr(data, split).items():
            _check(corpus.tags or "", found, f"data.{split}.{name}.tags", "no training corpus has this tag")
    return found


def check_tags(data: DataConfig, default: str, tokenizer: Tokenizer) -> None:
    """Raises ValueError for a tag of the corpora, or of decode.tags, that the tokenizer does not have."""
    for name, corpus in data.train.items():
        tag_ids(corpus.tags or "", tokenizer, f"data.train.{name}.tags")
    tag_ids(default, tokenizer)


def missing_tags(data: DataConfig, tags: str) -> str | None:
    """Returns a warning where a model that was trained on nothing without tags is to translate without any."""
    known = training_tags(data)
    if tags or not known or not all(corpus.tags for corpus in data.train.values()):
        return None
    return f"this model was trained on nothing without tags, and none is given: --tags of {', '.join(known)}"


def tag_ids(tags: str, tokenizer: Tokenizer, setting: str = "decode.tags") -> list[int]:
    """Returns the ids of tags, which spaces part. Raises ValueError, naming the setting, for one that is not there."""
    _check(tags, tokenizer.tags, setting, "the tokenizer was trained without this tag")
    return [tokenizer.tags[tag] for tag in tags.split()]


class CorpusTags:
    """The tags of each corpus of a split, by the number of a pair.

    pairs: of each corpus; default: the tags of a corpus that has no setting.
    """

    def __init__(
        self, corpora: Mapping[str, CorpusConfig], pairs: list[int], tokenizer: Tokenizer, split: str, default: str = ""
    ) -> None:
        self.names = [default if corpus.tags is None else corpus.tags for corpus in corpora.values()]
        self.ids = [
            np.array(tag_ids(own, tokenizer, f"data.{split}.{name}.tags"), dtype=np.int32)
            for name, own in zip(corpora, self.names, strict=True)
        ]
        self.counts = np.array([len(ids) for ids in self.ids])
        self._ends = np.cumsum(pairs)

    def corpora(self, pairs: np.ndarray) -> np.ndarray:
        """Returns the number of each pair's corpus: int64 [pairs]."""
        return np.searchsorted(self._ends, pairs, side="right")


def _check(tags: str, known: Iterable[str], setting: str, rule: str) -> None:
    for tag in tags.split():
        if tag not in known:
            there = ", ".join(known) or "none"
            raise ValueError(f"{setting}={tags}: {tag}: {rule}{suggest(tag, known)} (tags: {there})")
