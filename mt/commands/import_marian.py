"""mt import: a Marian model in transformers' format, such as OPUS-MT's -> a trained folder."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def import_marian(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Holds config.json, weights, source.spm, target.spm, vocab.json.")
    ],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The new trained folder.")],
    source_language: Annotated[str, typer.Option(help="Code of the language that it translates from.")],
    target_language: Annotated[str, typer.Option(help="Code of the language that it translates to.")],
) -> None:
    """Make a trained folder of a Marian model: to translate with, to fine-tune (mt train init_from=RUN), to export."""
    from mt.export.marian_import import import_marian as import_folder

    settings = import_folder(folder, run, source_language, target_language)
    print(f"{run}: written; fine-tune it with mt train init_from={run} {settings}", file=sys.stderr)
    print(run)
