"""Two texts side by side: which words of one the other does not have in that order."""

import re
from difflib import SequenceMatcher

from mt.evaluation.metrics import CJK

_PIECE = re.compile(f"{CJK}|(?:(?!{CJK})\\w)+|\\s+|.", re.DOTALL)


def marked(text: str, other: str) -> list[tuple[str, bool]]:
    """Returns the text in spans, each with whether it differs from `other`; the spans joined are the text.

    Words are compared, in Chinese and Japanese characters, and each sign of punctuation; white space never differs.
    """
    pieces, others = _PIECE.findall(text), _PIECE.findall(other)
    words = [piece for piece in pieces if not piece.isspace()]
    matcher = SequenceMatcher(None, words, [piece for piece in others if not piece.isspace()], autojunk=False)
    same = {index for block in matcher.get_matching_blocks() for index in range(block.a, block.a + block.size)}
    spans: list[tuple[str, bool]] = []
    index, space = 0, ""
    for piece in pieces:
        if piece.isspace():
            space = piece
            continue
        differs = index not in same
        index += 1
        if spans and spans[-1][1] == differs:
            spans[-1] = (spans[-1][0] + space + piece, differs)
        else:
            spans += [(space, False)] * bool(space) + [(piece, differs)]
        space = ""
    return spans + [(space, False)] * bool(space)
