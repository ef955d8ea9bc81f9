"""What is repaired in a text: each repair is a function of one text that returns it repaired, or as it was."""

import html
import html.entities
import re
from collections.abc import Callable

# Only what ends in a semicolon: html.unescape alone would turn "&copy" and "&timesheet" into characters too.
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_ESCAPED_AT_MOST = 3  # times, as in &amp;amp;quot;
# What ends a line or controls a terminal, as the tokenizer reads it: a space.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# What cannot be seen and means nothing: soft hyphen, grapheme joiner, zero-width space, word joiner, invisible
# operators, byte order mark, interlinear marks, noncharacters. Joiners (U+200C, U+200D) and marks of direction mean
# something in Persian, Indic scripts, emoji, Arabic and Hebrew.
_INVISIBLE = re.compile("[\u00ad\u034f\u200b\u2060-\u2064\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff]")


def decode_entities(text: str) -> str:
    """Returns the text with HTML entities decoded, those of entities too (&amp;quot;).

    An entity begins with & and ends with a semicolon; names that HTML5 does not have stay. A line break or another
    control character becomes a space.
    """
    for _ in range(_ESCAPED_AT_MOST):
        if "&" not in text:
            break
        before, text = text, _ENTITY.sub(_decoded, text)
        if text == before:
            break
    return text


def _decoded(entity: re.Match[str]) -> str:
    name = entity[0][1:]
    text = html.unescape(entity[0]) if name.startswith("#") else html.entities.html5.get(name, entity[0])
    return _CONTROLS.sub(" ", text)


def replace_controls(text: str) -> str:
    """Returns the text with a space for each control character and line separator, without invisible characters."""
    if text.isprintable():  # which none of them is, and far faster than two searches
        return text
    return _INVISIBLE.sub("", _CONTROLS.sub(" ", text))


def mojibake_repair() -> Callable[[str], str]:
    """Returns ftfy's function that undoes the reading of UTF-8 as another encoding. Raises ValueError without ftfy."""
    try:
        from ftfy import fix_encoding
    except ImportError as error:
        raise ValueError("data.cleaning.mojibake: the package ftfy is missing: pip install 'mt[cleaning]'") from error

    def repair(text: str) -> str:
        return text if text.isascii() else fix_encoding(text)

    return repair
