"""Attention as one interactive HTML file, without anything from outside."""

import json
from pathlib import Path

import jinja2
from markupsafe import Markup

from mt.attention.choice import TITLES
from mt.attention.view import View

_STEPS = 1000  # weights are kept as whole thousandths


def page(view: View, text: str, source_language: str, target_language: str) -> str:
    """Returns the page: choose kind, layer and head; point at a word to see what it looks at.

    text: the sentence, for the title; languages as codes, by which a browser chooses the forms of characters.
    """
    maps = {}
    for one in view.maps:
        rounded = (one.weights * _STEPS).round().int().tolist()
        maps[one.kind] = {"title": TITLES[one.kind], "rows": one.rows, "columns": one.columns, "weights": rounded}
    data = {
        "maps": maps,
        "written": view.written,
        "likeliest": [[[token, round(p, 4)] for token, p in next_ones] for next_ones in view.likeliest],
        "languages": {"source": source_language, "target": target_language},
        "steps": _STEPS,
    }
    # inside <script> nothing but "</script" and "<!--" is special, and both need a "<"
    inlined = Markup(json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"))
    folder = jinja2.FileSystemLoader(Path(__file__).parent, encoding="utf-8")
    environment = jinja2.Environment(loader=folder, autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.get_template("page.html").render(text=text, data=inlined)
