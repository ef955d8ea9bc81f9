"""Public test sets by the names that sacreBLEU knows, such as wmt14: downloaded once, and read as two text files."""

from pathlib import Path

from mt.languages import primary_language


def known_test_set(name: str, languages: tuple[str, str], setting: str) -> tuple[Path, list[Path]]:
    """Returns the file of sources and one for each reference, downloaded now where they are not there yet.

    The direction is the one of exactly these languages (source, target), else of them without script and country.
    Raises ValueError, naming the setting, for an unknown name or direction, and where the download fails.
    """
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        raise ValueError(f"{setting}={name}: is no test set of sacreBLEU; there are {', '.join(sorted(DATASETS))}")
    found = DATASETS[name]
    plain = {"-".join(map(primary_language, direction.split("-"))): direction for direction in found.langpairs}
    exact, wanted = "-".join(languages), "-".join(map(primary_language, languages))
    direction = exact if exact in found.langpairs else plain.get(wanted)
    if direction is None:
        raise ValueError(
            f"{setting}={name}: is not for {wanted}; there is {', '.join(found.langpairs)}: set data.source_language "
            "and data.target_language"
        )
    try:
        source, *references = found.get_source_file(direction), *found.get_reference_files(direction)
    except (OSError, SystemExit) as error:  # SystemExit: sacreBLEU's own way, after it has told what is wrong
        reason = " ".join(str(error).split())[:200] if isinstance(error, OSError) else "see the message above"
        raise ValueError(
            f"{setting}={name}: cannot be downloaded ({reason}): fetch it where there is a connection, by sacrebleu "
            f"--test-set {name} --language-pair {direction} --echo src, and copy ~/.sacrebleu/{name} to this machine"
        ) from error
    return Path(source), list(map(Path, references))
