"""mt attention: a sentence and a trained model -> what it looks at while it translates."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mt.attention.view import View
    from mt.translation.translator import Translator

_KIND = typer.Option(help="encoder, decoder (both look at themselves) or cross. [default: all three]")
_HEAD = typer.Option(help="One head, from 1; 0: their mean. [default: the mean; in a picture each one]")


def attention(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A trained folder, such as runs/demo.")] = None,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="A sentence to translate.")] = None,
    target: Annotated[str | None, typer.Option(help="Look at this translation. [default: the model's own]")] = None,
    prefix: Annotated[str | None, typer.Option(help="Stop after this beginning: what comes next?")] = None,
    kind: Annotated[str | None, _KIND] = None,
    layer: Annotated[int | None, typer.Option(help="One layer, from 1. [default: each]")] = None,
    head: Annotated[int | None, _HEAD] = None,
    each_head: Annotated[bool, typer.Option("--each-head", help="Show each head, not their mean.")] = False,
    png: Annotated[Path | None, typer.Option(help="Write a picture: a row a layer, a column a head.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write an interactive page, one file with all in it.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Explain attention step by step; RUN, if given, beside random weights.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="With --explain: write this Markdown file, and its pictures beside it.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    checkpoint: Annotated[str, typer.Option(help="best, last or a name such as step_00001000.")] = "best",
) -> None:
    """Show what a model looks at while it translates: a table for each layer, a picture or a page.

    Rows look, columns are looked at. After the tables come the likeliest next tokens at each place.
    """
    shown = {
        "TEXT": text, "--target": target, "--prefix": prefix, "--kind": kind, "--layer": layer, "--head": head,
        "--each-head": each_head or None, "--png": png, "--html": html,
    }  # fmt: skip
    if explain:
        if given := [name for name, value in shown.items() if value is not None]:
            raise ValueError(f"{given[0]}: has no meaning with --explain, whose sentences are fixed: leave it out")
        _explain(run, output, device, checkpoint)
        return
    if run is None or text is None:
        raise ValueError('give RUN and TEXT, such as runs/demo "I love china", or --explain')
    if output is not None:
        raise ValueError(f"--output={output}: is for --explain; a picture is --png FILE, a page --html FILE")
    if target is not None and prefix is not None:
        raise ValueError("give either --target or --prefix, not both")
    if each_head and head is not None:
        raise ValueError(f"--head={head}: is one head; leave it or --each-head out")
    from mt.attention.choice import Choice
    from mt.attention.view import look
    from mt.translation.output import check_folder
    from mt.translation.translator import load_translator

    for file in (png, html):
        if file is not None:
            check_folder(file)
    if png is not None:
        from mt.attention.picture import check_matplotlib

        check_matplotlib()
    translator = load_translator(run, device, checkpoint)
    view = look(translator, text, target, prefix)
    choice = Choice(kind, layer, head)
    choice.maps(view)  # raises before anything is written
    if png is None and html is None:
        from mt.attention.terminal import show

        show(view, Choice(kind, layer, head if head is not None or each_head else 0))
        return
    if png is not None:
        from mt.attention.picture import picture

        _write(png, picture(view, choice))
    if html is not None:
        _write(html, _page(run, text, view))


def _page(run: Path, text: str, view: "View") -> bytes:
    from mt.attention.page import page
    from mt.checkpoint import load_config

    data = load_config(run).data
    return page(view, text, data.source_language, data.target_language).encode()


def _write(file: Path, content: bytes) -> None:
    from mt.translation.output import open_output

    with open_output(file) as opened:
        opened.write(content)


def _explain(run: Path | None, output: Path | None, device: str, checkpoint: str) -> None:
    import sys

    from mt.attention.explain import explain, figures
    from mt.attention.walk_through import walk_through
    from mt.translation.output import check_folder, open_output

    if output is not None:
        check_folder(output)
    walk = walk_through(None if run is None else _from_english_to_chinese(run, device, checkpoint))
    if output is not None:
        found = figures(walk)
        pictures = {name: output.with_name(f"{output.stem}_{name}.png") for name in found}
        for name, file in pictures.items():
            _write(file, found[name])
        _write(output, explain(walk, {name: file.name for name, file in pictures.items()}).encode())
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console().print(Markdown(explain(walk, {})))
    else:
        with open_output(None) as file:
            file.write(explain(walk, {}).encode())


def _from_english_to_chinese(run: Path, device: str, checkpoint: str) -> "Translator":
    from mt.checkpoint import load_config
    from mt.languages import primary_language
    from mt.translation.translator import load_translator

    data = load_config(run).data
    if (primary_language(data.source_language), primary_language(data.target_language)) != ("en", "zh"):
        raise ValueError(
            f"{run}: translates from {data.source_language} to {data.target_language}, but the walk-through translates "
            "from en to zh: leave RUN out, or give one such as make demo trains"
        )
    return load_translator(run, device, checkpoint)
