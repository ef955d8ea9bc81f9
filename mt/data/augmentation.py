"""Changes to training pairs that make a model robust, each with a chance of its own; docs/mixing.md shows them.

All of it is text before tokenising, and a function of the settings, the texts and a seed.
"""

import random
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np

from mt.config import AugmentationConfig
from mt.documents.protection import mask_placeholders
from mt.languages import WITHOUT_SPACES, primary_language

Pair = tuple[str, str]
_LETTERS_PER_TYPO = 20
_WORD = re.compile(r"[^\W_]+(?:[.,'’-][^\W_]+)*")  # a number with its points, a name with its hyphens
_FROM_HERE_WITHOUT_SPACES = "\u2e80"  # East Asian characters, beside which a word of letters may stand without a space
_PUNCTUATION = set(".,;:!?…\"'()[]«»‹›“”„‘’‚¿¡–—-。，、；：！？「」『』（）《》〈〉【】؟،؛।")
_NAMES = ("name", "user", "count", "file", "date", "title", "url", "value", "id", "n", "0", "1", "2")
_FORMS = (
    "{%s}", "{{%s}}", "${%s}", "%%(%s)s", "%%{%s}", "<%s>", "[%s]", "https://example.org/%s", "%s@example.org", "@%s",
    "%%s", "%%d", "%%1$s",
)  # fmt: skip
_INVENTED_NAMES = 0.5  # share; a model that knew a few names only would not copy others


def is_on(config: AugmentationConfig) -> bool:
    """Returns whether any change has a chance."""
    return any(asdict(config).values())


class Augmenter:
    """Draws the changes of batches."""

    def __init__(self, config: AugmentationConfig) -> None:
        self.merging = config.merging_probability
        changes: dict[Callable[[Pair, random.Random], Pair], float] = {  # in the order in which they are made
            without_punctuation: config.punctuation_probability,
            in_lower_case: config.lowercase_probability,
            in_capitals: config.uppercase_probability,
            with_typos: config.typo_probability,
            with_placeholder: config.placeholder_probability,  # last: it stays as it is
        }
        self.changes = {change: probability for change, probability in changes.items() if probability}

    def draw(self, pairs: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Returns which of a batch's pairs go on with another one, bool [pairs], and what changes, [changes, pairs]."""
        drawn = generator.random((1 + len(self.changes), pairs))
        return drawn[0] < self.merging, drawn[1:] < np.array(list(self.changes.values()))[:, None]

    def change(self, pair: Pair, wanted: Sequence[bool], own: random.Random) -> Pair:
        """Returns the pair with the wanted of the changes made; one with a placeholder or an address stays."""
        if any(wanted) and mask_placeholders(pair[0]) == pair[0]:
            for change, is_wanted in zip(self.changes, wanted, strict=True):
                if is_wanted:
                    pair = change(pair, own)
        return pair


def partners(wanted: np.ndarray, corpora: np.ndarray, tokens: np.ndarray, most: int, own: random.Random) -> np.ndarray:
    """Returns for each pair of a batch the one that it goes on with, or -1; -2: it is the other half of such a pair.

    wanted: which are to go on, bool [pairs]; corpora: the number of each one's corpus, which both halves share;
    tokens: of the longer side of each; both halves together have at most `most`.
    """
    found = np.full(len(wanted), -1)
    free: dict[int, list[int]] = {}
    for pair in own.sample(range(len(wanted)), len(wanted)):
        free.setdefault(int(corpora[pair]), []).append(pair)
    for pair in np.flatnonzero(wanted).tolist():
        waiting = free[int(corpora[pair])]
        while found[pair] == -1 and waiting:
            other = waiting.pop()
            if other != pair and found[other] == -1 and tokens[pair] + tokens[other] <= most:
                found[pair], found[other] = other, -2
    return found


def joined(first: Pair, second: Pair, languages: tuple[str, str]) -> Pair:
    """Returns both pairs as one, with a space between sentences where the language has one. languages: of the sides."""
    gaps = ("" if primary_language(code) in WITHOUT_SPACES else " " for code in languages)
    source, target = (one + gap + other for one, gap, other in zip(first, gaps, second, strict=True))
    return source, target


def in_lower_case(pair: Pair, own: random.Random) -> Pair:
    """Returns the pair with its source in lower case."""
    return pair[0].lower(), pair[1]


def in_capitals(pair: Pair, own: random.Random) -> Pair:
    """Returns the pair with both sides in capitals."""
    return pair[0].upper(), pair[1].upper()


def without_punctuation(pair: Pair, own: random.Random) -> Pair:
    """Returns the pair with no punctuation in its source but what stands between letters or digits: it's, 3.5.

    A source of nothing else stays.
    """
    source = pair[0]
    kept = [
        character
        for before, character, after in zip(" " + source, source, source[1:] + " ", strict=False)
        if character not in _PUNCTUATION
        or (before.isalnum() and after.isalnum() and before < _FROM_HERE_WITHOUT_SPACES)
    ]
    text = re.sub(" {2,}", " ", "".join(kept)).strip()
    return text or source, pair[1]


def with_typos(pair: Pair, own: random.Random) -> Pair:
    """Returns the pair with wrong letters in its source: swapped with the next, missing, doubled, or another of it.

    One in twenty letters, one at least where there are two.
    """
    characters = list(pair[0])
    letters = [i for i, character in enumerate(characters) if character.isalpha()]
    if len(letters) < 2:
        return pair
    known = [characters[i] for i in letters]
    for place in own.sample(letters, max(1, round(len(letters) / _LETTERS_PER_TYPO))):
        kind = own.randrange(4)
        if kind == 0 and place + 1 < len(characters) and characters[place + 1].isalpha():
            characters[place], characters[place + 1] = characters[place + 1], characters[place]
        elif kind == 1:
            characters[place] = ""
        elif kind == 2:
            characters[place] *= 2
        else:
            characters[place] = own.choice(known)
    return "".join(characters), pair[1]


def with_placeholder(pair: Pair, own: random.Random) -> Pair:
    """Returns the pair with a placeholder, on both sides, for a word that both have once; where none is, as it was."""
    source, target = pair
    words = [word for word in dict.fromkeys(_WORD.findall(source)) if word[0].isdigit() or len(word) > 1]
    shared = [word for word in words if word in target and _once(word, source) and _once(word, target)]
    if not shared:
        return pair
    form = own.choice(_FORMS)
    if own.random() < _INVENTED_NAMES:
        name = "".join(own.choice(string.ascii_lowercase) for _ in range(own.randint(2, 8)))
    else:
        name = own.choice(_NAMES)
    placeholder = form % name if "%s" in form.replace("%%", "") else form % ()
    word = own.choice(shared)
    return source.replace(word, placeholder), target.replace(word, placeholder)


def _once(word: str, text: str) -> bool:
    """Returns whether a word stands in a text once, and not as a part of a longer one."""
    place = text.find(word)
    if text.find(word, place + 1) >= 0:
        return False
    beside = text[place - 1 : place], text[place + len(word) : place + len(word) + 1]
    return not any(character.isalnum() and character < _FROM_HERE_WITHOUT_SPACES for character in beside)
