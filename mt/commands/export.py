"""mt export: a trained folder -> a model for CTranslate2, transformers or Argos Translate."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained folder, such as runs/demo.")],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The new folder; with --to argos a file that ends in .argosmodel.")
    ],
    to: Annotated[str, typer.Option(help="ctranslate2, transformers or argos.")],
    quantization: Annotated[
        str | None,
        typer.Option(
            help="For ctranslate2 and argos: float32, int8, int8_float32, int8_float16, int8_bfloat16, int16, float16 "
            "or bfloat16. [default: float32]"
        ),
    ] = None,
    license: Annotated[str | None, typer.Option(help="Licence of the weights, for the model card.")] = None,
    verify: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Sentences to compare translations of. [default: the run's data.valid]"),
    ] = None,
    verify_sentences: Annotated[int, typer.Option(help="How many of them, at most.")] = 300,
    checkpoint: Annotated[str, typer.Option(help="best, last or a name such as step_00001000.")] = "best",
) -> None:
    """Write a model that other engines load, checked to translate as mt does.

    The export appears under its name only when it has been verified; prints how it compares.
    """
    from mt.export.export import Request
    from mt.export.export import export as export_run

    request = Request(run, out, to, quantization, checkpoint, license, verify, verify_sentences)
    verification = export_run(request, lambda text: print(text, file=sys.stderr))
    for line in verification.lines():
        print(line)
    print(f"{out}: written, with a README.md to complete", file=sys.stderr)
