"""mt data: a run or an experiment -> what it trains on, before anything is trained."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mt.config import TrainConfig
    from mt.data.survey import Samples, Survey
    from mt.tokenizer import TokenizerPair

PROGRESS_PAIRS = 1_000_000
_TARGET = typer.Argument(metavar="RUN|EXPERIMENT", help="A trained folder, or the name of an experiment.")
_SETTINGS = typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change, as for mt train.")
_TOKENIZER = typer.Option(help="With an experiment: a run whose tokenizer counts the tokens.", metavar="RUN")


def data(
    target: Annotated[str, _TARGET],
    settings: Annotated[list[str] | None, _SETTINGS] = None,
    samples: Annotated[int, typer.Option(min=0, help="How many of each kind of damage to show.")] = 3,
    seed: Annotated[int, typer.Option(help="Draws the samples.")] = 1,
    png: Annotated[Path | None, typer.Option(help="Write the lengths as a picture.", metavar="FILE")] = None,
    tokenizer: Annotated[Path | None, _TOKENIZER] = None,
    config_dir: Annotated[Path | None, typer.Option(help="Also find DIR/experiment/NAME.yaml.", metavar="DIR")] = None,
) -> None:
    """Show what cleaning makes of the training pairs: what each step repairs and drops, lengths, tokens.

    Nothing is trained and nothing but the picture is written. Tokens are counted by a run's tokenizer.
    """
    from mt.data.clean import check_cleaning
    from mt.data.corpus import check_corpora
    from mt.data.histogram import check_matplotlib, picture
    from mt.data.survey import survey
    from mt.translation.output import check_folder, open_output

    config = _config(target, settings or [], config_dir)
    tokenizers = _tokenizers(Path(target), tokenizer)
    if png is not None:
        check_matplotlib()
        check_folder(png)
    if not config.data.train:
        raise ValueError("data.train: no corpus given: set data.train.main.source and .target, .path or .dataset")
    check_corpora(config.data)
    check_cleaning(config.data)
    found = survey(config.data, tokenizers, samples, seed, _Progress())
    _show(found)
    if png is not None:
        with open_output(png) as file:
            file.write(picture([found.characters] + ([found.token_lengths] if found.token_lengths else [])))


def _config(target: str, settings: list[str], config_dir: Path | None) -> "TrainConfig":
    """Returns the settings of a run folder, or those that an experiment composes."""
    from mt.compose import compose, read_config

    folder = Path(target)
    if folder.is_dir():
        if config_dir is not None:
            raise ValueError(f"--config-dir has no meaning with a run: {target} is a folder")
        return read_config(folder / "config.yaml", settings)
    if "/" in target and config_dir is None:
        raise ValueError(f"{target}: there is no such folder; give a run's folder or the name of an experiment")
    return compose([f"experiment={target}", *settings], config_dir)


def _tokenizers(folder: Path, other: Path | None) -> "TokenizerPair | None":
    """Returns the tokenizers of the run, or None for an experiment without --tokenizer."""
    from mt.tokenizer import TokenizerPair

    if folder.is_dir() and other is not None:
        raise ValueError(f"--tokenizer={other} has no meaning with a run: {folder} has its own")
    run = folder if folder.is_dir() else other
    return None if run is None else TokenizerPair.load(run / "tokenizer")


class _Progress:
    """Tells on standard error, each million pairs, how many were read."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, pairs: int) -> None:
        if pairs >= self._told + PROGRESS_PAIRS:
            self._told = pairs
            print(f"{pairs:,} pairs read", file=sys.stderr)


def _show(found: "Survey") -> None:
    from mt.commands.tables import print_lines, print_table

    columns = ["step", "repaired_texts", "dropped_pairs", "left_pairs", "left_%"]
    rows = [
        [row.step, f"{row.repaired:,}", f"{row.dropped:,}", f"{row.left:,}", _share(row.left, found.read)]
        for row in found.funnel
    ]
    print_table(f"data.train: {found.read:,} pairs read, {found.left:,} left", columns, rows, [])
    if found.dropped:
        kinds = [[reason, f"{n:,}", _share(n, found.read)] for reason, n in found.dropped.most_common()]
        print_table("dropped, by the first reason", ["reason", "pairs", "%"], kinds, [])
    if found.repaired:
        kinds = [[kind, f"{n:,}", _share(n, found.read)] for kind, n in found.repaired.most_common()]
        print_table("repaired", ["kind", "texts", "%"], kinds, [])
    print_lines(_samples(found.samples))
    print_lines(["# lengths of what is left", *found.characters.lines()])
    if found.tokens is None:
        print_lines(["# tokens: there is no tokenizer yet; a run has one, and --tokenizer RUN takes that of another"])
        return
    print_lines(found.token_lengths.lines())
    rows = []
    for side, (name, tokens) in enumerate(zip(("source", "target"), found.tokens, strict=True)):
        used = int((tokens.pieces > 0).sum())
        rows.append([
            name, f"{tokens.count:,}", f"{tokens.count / max(1, found.left):.1f}",
            str(found.token_lengths.longest[side]), f"{tokens.characters / max(1, tokens.count):.2f}",
            f"{used:,} of {len(tokens.pieces):,}", f"{tokens.spelled:,}",
            f"{100 - 100 * tokens.spelled / max(1, tokens.characters):.4f}",
        ])  # fmt: skip
    columns = ["side", "tokens", "mean", "longest", "characters_a_token", "pieces_used", "spelled_characters"]
    print_table("tokens", [*columns, "coverage_%"], rows, ["coverage: characters that have a piece; the rest is bytes"])


def _samples(samples: "Samples") -> list[str]:
    lines = []
    for kind, texts in samples.drawn.items():
        shown = min(samples.size, samples.seen[kind])
        lines.append(f"# {kind}: {shown} of {samples.seen[kind]:,}")
        for one, other in texts[:shown]:
            lines += [f"  - {_printable(one)}", f"    {_printable(other)}"]
    return lines


def _printable(text: str) -> str:
    """Returns the text with what a terminal would not show, or obey, spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.2f}"
