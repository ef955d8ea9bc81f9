"""mt evaluate: a trained folder -> BLEU and chrF."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained folder, such as runs/demo.")],
    source: Annotated[Path | None, typer.Option(help="Source sentences, one a line. [default: data.test]")] = None,
    reference: Annotated[Path | None, typer.Option(help="Their translations, one a line.")] = None,
    output_dir: Annotated[
        Path | None, typer.Option(help="Where NAME.hyp.txt and NAME.json go. [default: RUN/results]")
    ] = None,
    beam_size: Annotated[int | None, typer.Option(help="1 is greedy search. [default: the run's]")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="0 favours short output. [default: the run's]")] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(help="No run of so many tokens twice; 0: off. [default: the run's]")
    ] = None,
    bleu_tokenizer: Annotated[
        str | None, typer.Option(help="One of sacreBLEU's. [default: what fits the target language]")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    checkpoint: Annotated[str, typer.Option(help="best, last or a name such as step_00001000.")] = "best",
) -> None:
    """Score a trained model with BLEU and chrF.

    On two text files, or else on each of the test corpora that the run names (data.test); with several, each line
    begins with the corpus's name and a tab.
    """
    from mt.checkpoint import load_config
    from mt.translation.evaluate import changed
    from mt.translation.evaluate import evaluate as evaluate_run

    decode = changed(load_config(run).decode, beam_size, length_penalty, no_repeat_ngram_size)
    progress = _show_progress if sys.stderr.isatty() else None
    results = evaluate_run(
        run, source, reference, device, checkpoint, decode, output_dir, progress, bleu_tokenizer=bleu_tokenizer
    )
    for name, result in results.items():
        column = f"{name}\t" if len(results) > 1 else ""
        print(f"{column}{result.bleu}\n{column}{result.chrf}")
        print(f"{result.sentences} sentences: {result.translations_file}, {result.scores_file}", file=sys.stderr)


def _show_progress(done: int, total: int) -> None:
    print(f"\r{done}/{total} sentences", end="\n" if done == total else "", file=sys.stderr, flush=True)
