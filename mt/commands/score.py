"""mt score: given translations -> how likely a trained model finds them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mt.translation.translator import Translator

PAIRS_AT_ONCE = 2000


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained folder, such as runs/demo.")],
    source: Annotated[Path, typer.Option(help="Source sentences, one a line (UTF-8, .gz too).")],
    target: Annotated[Path, typer.Option(help="A translation of each, one a line.")],
    output: Annotated[Path | None, typer.Option(help="Write this file, complete or not at all.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write a JSON object for each line: pieces, their scores, the alignment.")
    ] = False,
    together_with: Annotated[
        list[Path] | None, typer.Option("--with", help="One more run for an ensemble; may be repeated.")
    ] = None,
    tags: Annotated[
        str | None, typer.Option(help="Tags before each source, such as '<2de>'. [default: the run's]")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    checkpoint: Annotated[str, typer.Option(help="best, last or a name such as step_00001000.")] = "best",
) -> None:
    """Score translations that are there already: log probability (natural) and tokens, </s> counted, of each line.

    A line whose source or target is empty scores 0 with 0 tokens. The mean of all tokens and their perplexity go to
    standard error.
    """
    import math

    from mt.checkpoint import load_config
    from mt.config import CorpusConfig, DataConfig
    from mt.data.corpus import check_corpus, read_corpus
    from mt.translation.evaluate import changed
    from mt.translation.output import open_output
    from mt.translation.translator import load_translator

    corpus = CorpusConfig(source=str(source), target=str(target))
    check_corpus(corpus, DataConfig(), "mt score")
    decode = changed(load_config(run).decode, tags=tags)
    translator = load_translator(run, device, checkpoint, decode, together_with or ())
    total, tokens, pairs, cut = 0.0, 0, 0, 0
    with open_output(output) as file:
        for line in _scored(translator, read_corpus(corpus, DataConfig(), "mt score")):
            total, tokens = total + line["log_probability"], tokens + line["tokens"]
            pairs, cut = line["line"], cut + line["truncated"]
            columns = f"{line['log_probability']:.4f}\t{line['tokens']}"
            file.write(f"{json.dumps(line, ensure_ascii=False) if as_json else columns}\n".encode())
    if cut:
        limits = f"{translator.decode.max_source_tokens} source or {translator.longest_forced} target tokens"
        print(f"of {pairs} pairs {cut} are longer than {limits} and were cut", file=sys.stderr)
    if tokens:
        mean = total / tokens
        print(f"{tokens:,} tokens: {mean:.4f} nats each, perplexity {math.exp(-mean):.3f}", file=sys.stderr)


def _scored(translator: "Translator", pairs: Iterator[tuple[str, str]]) -> Iterator[dict]:
    """Yields for each pair what --json writes."""
    from itertools import islice

    from mt.data.filters import is_empty

    sides, number = translator.tokenizers, 0
    while chunk := list(islice(pairs, PAIRS_AT_ONCE)):
        ids = sides.target.encode([target for _, target in chunk])
        sources = translator.sources(["" if is_empty(target) else source for source, target in chunk])
        views = translator.force(sources, ids)
        for source_ids, target_ids, view in zip(sources, ids, views, strict=True):
            number += 1
            limits = translator.decode.max_source_tokens, translator.longest_forced
            yield {
                "line": number,
                "log_probability": view.total if view else 0.0,
                "tokens": len(view.log_probs) if view else 0,
                "truncated": len(source_ids) > limits[0] or len(target_ids) > limits[1],
                **translator.details(source_ids, target_ids, view),
            }
