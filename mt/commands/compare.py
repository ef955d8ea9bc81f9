"""mt compare: two or more systems on one test set -> differences, and whether they are more than chance."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mt.translation.compare import ComparedSet

_SYSTEMS = typer.Argument(
    metavar="SYSTEM",
    help="Runs that mt evaluate scored, or files of translations, one a line; all are compared with the first.",
)
_REFERENCE = typer.Option(help="With files: the translations to compare with; again for each further reference.")
_LANGUAGE = typer.Option(help="With files: a code such as zh, by which words are cut. [default: at spaces]")
_TOKENIZER = typer.Option(help="One of sacreBLEU's. [default: what fits the target language]")


def compare(
    systems: Annotated[list[Path], _SYSTEMS],
    reference: Annotated[list[Path] | None, _REFERENCE] = None,
    source: Annotated[Path | None, typer.Option(help="With files: the source sentences, for the report.")] = None,
    target_language: Annotated[str | None, _LANGUAGE] = None,
    bleu_tokenizer: Annotated[str | None, _TOKENIZER] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object instead of tables.")] = False,
    report: Annotated[Path | None, typer.Option(help="Write a report as one HTML file.")] = None,
) -> None:
    """Compare systems on the same test set, with two tests of significance.

    Paired bootstrap resampling and paired approximate randomisation by sacreBLEU, for BLEU, chrF, chrF++ and TER.
    """
    for system in systems:
        if not system.exists():
            raise ValueError(f"{system}: No such file or folder; give runs that were evaluated, or files")
    folders = [system for system in systems if system.is_dir()]
    if folders and len(folders) < len(systems):
        raise ValueError(
            f"{folders[0]} is a run, others are files: give runs only, or files only (those of a run are "
            f"{folders[0]}/results/NAME.hyp.txt) with --reference FILE"
        )
    given = {"reference": reference, "source": source, "target-language": target_language}
    for name, value in given.items():
        if folders and value is not None:
            raise ValueError(f"--{name} is for files of translations; runs have their own: leave it out")
    if not folders and not reference:
        raise ValueError("files of translations need --reference FILE")
    if len(systems) < 2:
        raise ValueError(f"{systems[0]}: is one system; give two or more to compare")
    from mt.commands.tables import print_lines
    from mt.translation.compare import compare_files, compare_runs
    from mt.translation.output import check_folder, open_output

    if report is not None:
        check_folder(report)
    if folders:
        compared = compare_runs(systems, bleu_tokenizer)
    else:
        language = target_language or "und"
        compared = {reference[0].name: compare_files(systems, reference, source, language, bleu_tokenizer)}
    if as_json:
        print_lines([_json(compared)])
    else:
        _show(compared)
    if report is not None:
        from mt.translation.report import comparison_report

        with open_output(report) as file:
            file.write(comparison_report(compared))


def _json(compared: "dict[str, ComparedSet]") -> str:
    import json

    sets = {
        name: {
            "sentences": len(one.texts.references[0]),
            "comparisons": [comparison.record() for comparison in one.comparisons],
        }
        for name, one in compared.items()
    }
    return json.dumps({"test_sets": sets}, ensure_ascii=False, indent=2)


def _show(compared: "dict[str, ComparedSet]") -> None:
    from mt.commands.tables import print_table

    columns = ["system", "metric", "score", "mean", "95%_half_width", "difference", "p_bootstrap", "p_randomisation"]
    for name, one in compared.items():
        rows, notes = [], []
        for row in one.comparisons:
            interval = row.score.interval
            numbers = [f"{number:.2f}" for number in (row.score.value, interval.mean, interval.half_width)]
            differences = ["", "", ""]
            if row.difference is None:
                notes.append(f"{row.score.name}|{row.score.signature}")
            else:
                differences = [f"{row.difference:+.2f}", f"{row.p_bootstrap:.4f}", f"{row.p_randomisation:.4f}"]
            rows.append([row.system, row.score.name, *numbers, *differences])
        print_table(f"{name}: {len(one.texts.references[0]):,} sentences", columns, rows, notes)
