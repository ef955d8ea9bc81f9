"""A translator that runs in CTranslate2: from an exported folder, or from a run, converted on the way."""

import tempfile
from dataclasses import replace
from pathlib import Path

from mt.checkpoint import is_run, load_config
from mt.config import DecodeConfig
from mt.export.export import convert
from mt.translation.ctranslate2_engine import (
    RECORD,
    CTranslate2Translator,
    exported_decode,
    load_ctranslate2_translator,
    read_record,
)
from mt.translation.translator import load_translator


def is_export(folder: Path) -> bool:
    """Returns whether mt export wrote the folder."""
    return (folder / RECORD).is_file() and not is_run(folder)


def load_decode(folder: Path) -> DecodeConfig:
    """Returns the search settings of a run or of an export. Raises ValueError where the folder is neither."""
    return exported_decode(folder) if is_export(folder) else load_config(folder).decode


def load_languages(folder: Path) -> tuple[str, str]:
    """Returns the codes of source and target of a run or of an export. Raises ValueError as load_decode."""
    if is_export(folder):
        record = read_record(folder)
        return str(record.get("source_language")), str(record.get("target_language"))
    data = load_config(folder).data
    return data.source_language, data.target_language


def load_engine(
    folder: Path, device: str = "auto", checkpoint: str = "best", decode: DecodeConfig | None = None
) -> CTranslate2Translator:
    """Returns a translator of an export, or of a run's checkpoint in float32.

    `decode` replaces the folder's search settings. Raises ValueError as load_translator and
    load_ctranslate2_translator, and for a checkpoint of an export, which has but one.
    """
    if is_export(folder):
        if checkpoint != "best":
            raise ValueError(f"--checkpoint={checkpoint}: {folder} is an export, of one checkpoint: leave it out")
        return load_ctranslate2_translator(folder, device, decode)
    translator = load_translator(folder, "cpu", checkpoint, decode)
    config = replace(load_config(folder), decode=translator.decode)
    with tempfile.TemporaryDirectory(prefix="mt-ctranslate2-") as name:  # read whole when it is loaded
        convert(Path(name), config, translator, "float32")
        return load_ctranslate2_translator(Path(name), device)
