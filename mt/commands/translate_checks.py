"""Which options of mt translate go together: every check of them, by their names on the command line."""

import sys
from collections.abc import Mapping
from typing import Any

Options = Mapping[str, Any]  # from the name, such as --n-best or TEXT, to the value; what counts as false is not given

_OURS = (  # of mt's own search
    "--prefix", "--phrase", "--glossary", "--forbid", "--with", "--alternatives", "--sample", "--consensus",
    "--details", "--precision",
)  # fmt: skip
_OF_LINES = "--n-best", "--scores", "--json", "--alternatives", "--sample", "--consensus"
_INSTEAD = "--alternatives", "--sample", "--consensus"  # of searching
_COUNTS = "--n-best", *_INSTEAD


def check_options(options: Options) -> None:
    """Raises ValueError for values out of range, and for options that do not go together whatever is translated."""
    if options["TEXT"] and options["--input"]:
        raise ValueError("give either TEXT or --input, not both")
    if not options["TEXT"] and not options["--input"] and sys.stdin is None:
        raise ValueError("standard input is closed: give TEXT or --input FILE")
    for name in _COUNTS:
        if options[name] is not None and options[name] < 1:
            raise ValueError(f"{name}={options[name]}: must be at least 1")
    if options["--seed"] < 0:
        raise ValueError(f"--seed={options['--seed']}: must be at least 0")
    if options["--json"] and options["--scores"]:
        raise ValueError("--json writes the scores anyway: leave --scores out")
    if options["--details"] and not options["--json"]:
        raise ValueError("--details needs --json")
    if options["--engine"] not in (None, "mt", "ctranslate2"):
        raise ValueError(f"--engine={options['--engine']}: must be mt or ctranslate2")


def check_engine(options: Options, run: object, is_export: bool) -> None:
    """Raises ValueError for options that the engine, of a run or of an export, does not have."""
    by_ctranslate2 = is_export or options["--engine"] == "ctranslate2"
    given = [name for name in _OURS if options[name]]
    if by_ctranslate2 and given:
        remedy = f"or give the run that {run} was made from" if is_export else "or --engine=ctranslate2"
        raise ValueError(f"{given[0]}: is of mt's own search: leave it out, {remedy}")
    if options["--engine"] == "mt" and is_export:
        raise ValueError(f"--engine=mt: {run} is an export; leave --engine out, or give the run that it was made from")


def check_ways(options: Options, drawn: bool) -> None:
    """Raises ValueError for options that mean nothing beside what is asked for instead of a search.

    drawn: whether how to draw was told, by --temperature and its like.
    """
    instead = [name for name in _INSTEAD if options[name]]
    if len(instead) > 1:
        raise ValueError(f"{' and '.join(instead)}: give one of them")
    unused = ["--phrase", "--glossary"] if instead else []
    if instead == ["--alternatives"]:
        unused += ["--forbid", "--details", "--scores"]
    for name in unused:
        if options[name]:
            raise ValueError(f"{name}: has no meaning with {instead[0]}: leave it out")
    if instead and options["--n-best"] > 1:
        raise ValueError(f"--n-best={options['--n-best']}: has no meaning with {instead[0]}: leave it out")
    if drawn and not {"--sample", "--consensus"} & set(instead):
        raise ValueError("--temperature, --top-k, --top-p, --epsilon and --seed need --sample or --consensus")


def check_parts(options: Options, as_lines: bool) -> None:
    """Raises ValueError for what cannot be translated in parts, by several processes or by one that goes on."""
    rule = "--resume and torchrun are for lines of text, translated from --input FILE to --output FILE"
    for name in ("--input", "--output"):
        if not options[name]:
            raise ValueError(f"{name}: is missing: {rule}")
    others = "--split-sentences", "--protect", "--field", "--new-field", "--format"
    given = [name for name in others if options[name]] if not as_lines else ["--alternatives"]
    if not as_lines or options["--alternatives"]:
        raise ValueError(f"{given[0] if given else options['--input']}: has no meaning here: {rule}")


def check_output(options: Options, kind: str) -> None:
    """Raises ValueError where the input would be gone when it is translated; a .po keeps it."""
    source, output = options["--input"], options["--output"]
    if kind != "po" and source and output and output.exists() and output.samefile(source):
        raise ValueError(f"--output={output}: is the input, which would be gone: give another name")


def check_document(options: Options, kind: str) -> None:
    """Raises ValueError for options that mean nothing with a document, or with text cut into sentences."""
    if kind != "text" and options["TEXT"]:
        raise ValueError(f"--format={kind}: is of a file: give --input or standard input, not TEXT")
    if (options["--field"] or options["--new-field"]) and kind not in ("jsonl", "tsv", "csv"):
        raise ValueError(f"--field and --new-field are of jsonl, tsv and csv; the format is {kind}: leave them out")
    given = [name for name in _OF_LINES if options[name] and not (name == "--n-best" and options[name] == 1)]
    if given:
        kind = f"format {kind}" if kind != "text" else "--split-sentences and --protect"
        raise ValueError(f"{given[0]} has no meaning with {kind}: leave it out")
