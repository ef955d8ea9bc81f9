"""Markdown (.md): paragraphs, headings, items and table cells are translated; code, HTML and links' targets stay."""

import re

from mt.documents.content import Edit, decode, edited, encode
from mt.documents.protection import Code, Text, merged
from mt.documents.texts import TextTranslator

_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\r?\n(?:.*?\n)??(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\n|\r")
_SOFT_BREAK = re.compile(r"[ \t]?(?:\r\n|\n|\r)[ \t>]*")
# Where a part could match the same characters in several ways it is bounded: time stays linear.
_CODE = re.compile(
    r"""
      \\[!-/:-@\[-`{-~]                                               # a character that is no mark-up
    | (?<!`)(?P<ticks>`{1,9})(?!`) .{1,2000}? (?<!`)(?P=ticks)(?!`)
    | \[\^[^\[\]\s]{1,200}\](?!\():?                                  # a footnote
    | !?\[(?P<label>[^\[\]]{1,200})\](?:\[\])?(?![\[(])               # [label], of which the text is the target
    | !?\[
    | \]\(\s{0,9} (?:<[^<>\n]{0,2000}> | (?:\\\S|[^()\s\\]|\((?:[^()\s]|\([^()\s]{0,200}\)){0,200}\)){0,2000})
        (?:\s{1,9}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'|\([^()\n]{0,300}\)))? \s{0,9}\)
    | \]\[[^\[\]]{1,200}\] | \]
    | <!--.{0,2000}?--> | </?[A-Za-z!][^<>]{0,2000}>
    | \*{1,3} | (?<!\w)_{1,3}(?=\S) | (?<=\S)_{1,3}(?!\w) | ~~
    | \\\r?\n[ \t>]* | (?<![ ])[ ]{2,9}\r?\n[ \t>]*                   # a line break that is meant
    | (?:\A|\r?\n[ \t>]*):{3,}[^\n]*(?:\n[ \t>]*)?                    # :::note, a fence of many dialects
    """,
    re.VERBOSE | re.DOTALL,
)
# What makes of a text that begins with it something else than a paragraph, in one line.
_BLOCK_START = re.compile(
    r"[-+*](?=\s|\Z)|#{1,6}(?=\s|\Z)|>|(?P<number>\d{1,9})[.)](?=\s|\Z)|=+\s*\Z|(?:[-*_]\s*){2,}\Z|`{3}[^`]*\Z|~{3}"
)


def translate_markdown(data: bytes, name: str, texts: TextTranslator) -> bytes:
    """Returns the document with its texts translated, a paragraph in one line."""
    text, encoding, mark = decode(data, name, "utf-8")
    places, labels = _texts(text)
    sources = [_codes(text[start:end], labels) for start, end in places]
    edits: list[Edit[str]] = [
        (start, end, _written(found, text[start:end]))
        for (start, end), source, found in zip(places, sources, texts(sources), strict=True)
        if found != source
    ]
    return encode(edited(text, edits), name, encoding, mark)


def _texts(text: str) -> tuple[list[tuple[int, int]], set[str]]:
    """Returns the places of texts with their inline mark-up, and the labels of links that are defined elsewhere."""
    from markdown_it import MarkdownIt

    front_matter = _FRONT_MATTER.match(text)
    skipped = front_matter.end() if front_matter else 0
    body = "".join(_LINE_END.findall(text[:skipped])) + text[skipped:]  # with the same numbers of lines
    found: dict[str, dict[str, object]] = {}
    starts = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]
    places: list[tuple[int, int]] = []
    end = 0
    before = ""
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(body, found):
        in_table, before = before in ("th_open", "td_open"), token.type
        if token.type != "inline" or not token.content.strip():
            continue
        lines = (token.content.replace("|", "\\|") if in_table else token.content).split("\n")
        first, last = token.map[0], token.map[0] + len(lines) - 1
        start = text.find(lines[0].strip(), max(starts[first], end), starts[first + 1])
        stop = text.find(lines[-1].strip(), max(starts[last], start), starts[last + 1])
        if start >= 0 and stop >= 0:  # else it is written otherwise than it is read: it stays
            end = stop + len(lines[-1].strip())
            places.append((start, end))
    return places, set(found.get("references", {}))


def _codes(raw: str, labels: set[str]) -> Text:
    """Returns a text in one line, with its inline mark-up as codes."""
    text: Text = []
    end = 0
    while match := _CODE.search(raw, end):
        label = match["label"]
        code = match[0]
        if label is not None and " ".join(label.split()).upper() not in labels:
            code = code[: code.index("[") + 1]  # no link: a bracket like any other
        text += [_SOFT_BREAK.sub(" ", raw[end : match.start()]), Code(code)]
        end = match.start() + len(code)
    return merged([*text, _SOFT_BREAK.sub(" ", raw[end:])])


def _written(found: Text, source: str) -> str:
    """Returns a translation as Markdown in which it begins no list or heading and no other cell."""
    bar = "|" if re.search(r"(?<!\\)\|", source) else "\\|"
    text = "".join(part.raw if isinstance(part, Code) else part.replace("|", bar) for part in found)
    start = _BLOCK_START.match(text)
    if start is None or _BLOCK_START.match(source):
        return text
    escaped = max(0, start.end("number"))  # 1\. and \#
    return f"{text[:escaped]}\\{text[escaped:]}"
