"""Test sets, and what evaluating leaves of them in a folder: NAME.hyp.txt, one translation a line, and NAME.json."""

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.config import CorpusConfig, DataConfig
from mt.data.corpus import check_corpus, read_corpus
from mt.data.files import read_lines
from mt.translation.output import open_output


@dataclass(frozen=True)
class Texts:
    """A test set: its sources, where they are known, and one list for each reference translation; all of one length."""

    sources: list[str] | None
    references: list[list[str]]

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all its text."""
        sides = self.references if self.sources is None else [self.sources, *self.references]
        rows = list(zip(*sides, strict=True))
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def read_texts(corpus: CorpusConfig, more_references: list[str], data: DataConfig, label: str) -> Texts:
    """Returns a corpus as a test set, with the files of further references, a line for each of its pairs.

    `label` (data.test.main) stands in messages. Raises ValueError for what is missing, empty or of unequal length.
    """
    check_corpus(corpus, data, label)
    pairs = list(read_corpus(corpus, data, label))
    sources, first = [source for source, _ in pairs], [target for _, target in pairs]
    others = [list(read_lines(Path(file))) for file in more_references]
    for file, lines in zip(more_references, others, strict=True):
        check_lines(corpus.target or label, len(first), file, len(lines))
    return Texts(sources, [first, *others])


def check_lines(first: Path | str, first_count: int, second: Path | str, second_count: int) -> None:
    """Raises ValueError, naming both files, where they differ in lines."""
    if first_count != second_count:
        raise ValueError(
            f"{first} has {first_count} lines, {second} has {second_count}: line n of one must be line n of the other, "
            "in another language or by another translator"
        )


def read_record(file: Path) -> dict[str, Any] | None:
    """Returns what NAME.json holds; None where there is no such file or it is none of ours."""
    try:
        record = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    kinds = {"text": str, "sentences": int, "corpus": dict}
    ours = isinstance(record, dict) and all(isinstance(record.get(key), kind) for key, kind in kinds.items())
    return record if ours else None


def make_folder(folder: Path) -> None:
    """Makes the folder of results. Raises ValueError where nothing can be written there: now, not after translating."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"{folder}: cannot hold results ({error.strerror}): choose another --output-dir") from error


def check_replaces_only_its_own(folder: Path, name: str, fingerprint: str) -> None:
    """Raises ValueError where a file of this name is not the result of an earlier evaluation on the same text."""
    scores_file, translations_file = folder / f"{name}.json", folder / f"{name}.hyp.txt"
    if not scores_file.exists() and not translations_file.exists():
        return
    record = read_record(scores_file)
    if record is None or record["text"] != fingerprint:
        existing = scores_file if scores_file.exists() else translations_file
        raise ValueError(
            f"{existing}: was made from other text than this test corpus {name!r} and stays as it is; choose another "
            "--output-dir, or remove it"
        )


def read_translations(folder: Path, name: str, record: dict[str, Any]) -> list[str]:
    """Returns the lines of NAME.hyp.txt. Raises ValueError where it is not the file that the record describes."""
    file = folder / f"{name}.hyp.txt"
    try:
        content = file.read_bytes()
        lines = content.decode("utf-8").split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: cannot be read ({error}); evaluate the run again") from error
    written = record.get("translations_sha256")  # records of earlier versions lack it
    if len(lines) != record.get("sentences") or written not in (None, hashlib.sha256(content).hexdigest()):
        raise ValueError(f"{file}: was changed after {name}.json was written; remove it and evaluate the run again")
    return lines


def kept_translations(folder: Path, name: str, made_by: dict[str, Any], fingerprint: str) -> list[str] | None:
    """Returns the translations of an earlier evaluation, where translating again would give the same; else None.

    The text and everything in made_by have to be equal: checkpoint, weights, search settings, device, versions, the
    program's files. A program whose files were changed since its commit never counts as the same.
    """
    record = read_record(folder / f"{name}.json")
    known = made_by["weights"] is not None and not str(made_by["versions"]["git_commit"]).endswith("-dirty")
    if record is None or not known or record["text"] != fingerprint or "translations_sha256" not in record:
        return None
    if any(record.get(key) != value for key, value in made_by.items()):
        return None
    try:
        return read_translations(folder, name, record)
    except ValueError:  # removed or changed since
        return None


def write_results(folder: Path, name: str, translations: list[str], record: dict[str, Any]) -> dict[str, Any]:
    """Returns what was written as NAME.json: the record and the SHA-256 of the translations, NAME.hyp.txt."""
    content = "".join(f"{line}\n" for line in translations).encode()
    record = {**record, "translations_sha256": hashlib.sha256(content).hexdigest()}
    folder.mkdir(parents=True, exist_ok=True)
    with open_output(folder / f"{name}.hyp.txt") as file:
        file.write(content)
    with open_output(folder / f"{name}.json") as file:
        text = json.dumps(record, ensure_ascii=False, indent=2) + "\n"
        file.write(text.encode(errors="backslashreplace"))  # a file's name need not be UTF-8; JSON reads such escapes
    return record
