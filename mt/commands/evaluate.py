"""mt evaluate: a trained folder, or a file of translations -> scores with signatures and intervals."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mt.translation.evaluate import Evaluation
    from mt.translation.report import Details

_RUN = typer.Argument(metavar="RUN", help="A trained folder, such as runs/demo; without one, give --hypotheses.")
_REFERENCE = typer.Option(help="Their translations, one a line; again for each further reference translation.")
_TEST_SET = typer.Option(help="A public test set by sacreBLEU's name for it, such as wmt14; downloaded once.")
_LANGUAGE = typer.Option(help="With --hypotheses: a code such as zh, by which words are cut. [default: at spaces]")
_OUTPUT_DIR = typer.Option(help="Where NAME.hyp.txt and NAME.json go. [default: RUN/results]")
_NO_REPEAT = typer.Option(help="No run of so many tokens twice; 0: off. [default: the run's]")
_TAGS = typer.Option(help="Tags before each source, such as '<2de>'. [default: those of data.test, or the run's]")
_TOKENIZER = typer.Option(help="One of sacreBLEU's. [default: what fits the target language]")
_COMET = typer.Option(help="Score with this COMET model as well: a file, or a name downloaded before.")
_PRECISION = typer.Option(help="float32, bf16 (for GPUs that have it) or int8 (CPU). [default: float32]")
_DETAILS = typer.Option("--details", help="Also print scores by source length and by word frequency in training.")


def evaluate(
    run: Annotated[Path | None, _RUN] = None,
    source: Annotated[Path | None, typer.Option(help="Source sentences, one a line. [default: data.test]")] = None,
    reference: Annotated[list[Path] | None, _REFERENCE] = None,
    test_set: Annotated[str | None, _TEST_SET] = None,
    hypotheses: Annotated[Path | None, typer.Option(help="Score this file of translations, by any system.")] = None,
    target_language: Annotated[str | None, _LANGUAGE] = None,
    output_dir: Annotated[Path | None, _OUTPUT_DIR] = None,
    beam_size: Annotated[int | None, typer.Option(help="1 is greedy search. [default: the run's]")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="0 favours short output. [default: the run's]")] = None,
    no_repeat_ngram_size: Annotated[int | None, _NO_REPEAT] = None,
    tags: Annotated[str | None, _TAGS] = None,
    bleu_tokenizer: Annotated[str | None, _TOKENIZER] = None,
    comet: Annotated[str | None, _COMET] = None,
    details: Annotated[bool, _DETAILS] = False,
    report: Annotated[Path | None, typer.Option(help="Write a report as one HTML file.")] = None,
    precision: Annotated[str | None, _PRECISION] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    checkpoint: Annotated[
        str | None, typer.Option(help="best, last or a name such as step_00001000. [default: best]")
    ] = None,
) -> None:
    """Score translations with BLEU, chrF, chrF++ and TER, each with its signature and its 95% interval.

    Of a trained model on two text files, on a --test-set, or else on each of the test corpora that the run names
    (data.test); with several, each line begins with the corpus's name and a tab. Or, without RUN, of a file:
    --hypotheses FILE --reference FILE.
    """
    search = {"beam_size": beam_size, "length_penalty": length_penalty, "no_repeat_ngram_size": no_repeat_ngram_size}
    unused = {"RUN": run, "test_set": test_set, "checkpoint": checkpoint, "output_dir": output_dir, **search}
    unused |= {"precision": precision, "tags": tags}
    if hypotheses is None:
        unused = {"target_language": target_language}
        if run is None:
            raise ValueError("give RUN, a trained folder, or --hypotheses FILE with --reference FILE")
    for name, value in unused.items():
        if value is not None:
            option = name if name == "RUN" else "--" + name.replace("_", "-")
            raise ValueError(
                f"{option} has no meaning {'with' if hypotheses else 'without'} --hypotheses: leave it out"
            )
    from mt.translation import evaluate as evaluation
    from mt.translation.output import check_folder, open_output
    from mt.translation.report import detail, evaluation_report

    if report is not None:
        check_folder(report)  # now, and not after minutes of translating
    if hypotheses is not None:
        if not reference:
            raise ValueError("--hypotheses needs --reference FILE: without a reference there is nothing to score")
        language = target_language or "und"
        found = evaluation.evaluate_file(hypotheses, reference, source, language, bleu_tokenizer, comet, device)
        results = {hypotheses.name: found}
    else:
        from mt.checkpoint import load_config

        decode = evaluation.changed(load_config(run).decode, **search)
        progress = _show_progress if sys.stderr.isatty() else None
        files = run, source, reference, device, checkpoint or "best"
        others = decode, output_dir, progress, bleu_tokenizer, comet, precision or "float32", test_set, tags
        results = evaluation.evaluate(*files, *others)
    _show(results)
    if not details and report is None:
        return
    found = {name: detail(result, run) for name, result in results.items()}
    if details:
        _show_details(results, found)
    if report is not None:
        with open_output(report) as file:
            file.write(evaluation_report(results, found, run))


def _show(results: "dict[str, Evaluation]") -> None:
    from mt.commands.tables import print_lines

    for name, result in results.items():
        column = f"{name}\t" if len(results) > 1 else ""
        print_lines([f"{column}{score}" for score in result.scores.values()])
        if result.scores_file is None:
            print(f"{result.sentences} sentences: {result.translations_file}", file=sys.stderr)
            continue
        made = f"kept from before; remove {result.translations_file} to translate again" if result.reused else "new"
        print(
            f"{result.sentences} sentences: {result.translations_file} ({made}), {result.scores_file}", file=sys.stderr
        )


def _show_details(results: "dict[str, Evaluation]", details: "dict[str, Details]") -> None:
    from mt.commands.tables import print_table

    for name, result in results.items():
        lengths, frequencies = details[name].lengths, details[name].frequencies
        if lengths:
            scores = [score for score in lengths[0].scores.values()]
            columns = ["source_words", "sentences", *(score.name for score in scores)]
            rows = [
                [one.words, str(one.sentences), *(f"{score.value:.2f}" for score in one.scores.values())]
                for one in lengths
            ]
            notes = [f"{score.name}|{score.signature}" for score in scores]
            print_table(f"{name}: by length of the source", columns, rows, notes)
        if frequencies:
            columns = ["in_training", "in_references", "in_output", "right", "precision_%", "recall_%", "F1_%"]
            rows = [
                [
                    one.occurrences,
                    *map(str, (one.in_references, one.in_hypotheses, one.right)),
                    *(f"{100 * share:.2f}" for share in (one.precision, one.recall, one.f1)),
                ]
                for one in frequencies
            ]
            notes = [f"words by tok:{result.tokenizer}, with case, against the first reference"]
            print_table(f"{name}: words by their frequency in training", columns, rows, notes)


def _show_progress(done: int, total: int) -> None:
    print(f"\r{done}/{total} sentences", end="\n" if done == total else "", file=sys.stderr, flush=True)
