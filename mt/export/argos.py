"""A package for Argos Translate: a zip that holds a CTranslate2 model and the source's SentencePiece model.

    translate-en_zh-1_0/metadata.json         the languages
                        sentencepiece.model   cuts the source; outputs are joined piece by piece, so that the target's
                                              pieces need no model, and two vocabularies are no problem
                        model/                in CTranslate2's format
                        README.md

Argos Translate searches in a way of its own: 4 beams and length penalty 0.2, whatever the run says, and text is cut
into sentences first, by a model that it fetches for the source language when it is first used. It writes a byte piece
as it is spelled (<0xE9>), so the exported model has a bias that keeps those out of its outputs.
"""

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from mt.config import ModelConfig
from mt.export.transformers_model import NEVER
from mt.tokenizer import TokenizerPair
from mt.versions import mt_version

BEAMS, LENGTH_PENALTY = 4, 0.2  # of Argos Translate
SUFFIX = ".argosmodel"


def without_bytes(
    config: ModelConfig, weights: Mapping[str, Tensor], tokenizers: TokenizerPair
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Returns settings and weights of the same model with an output bias by which it never writes a byte piece."""
    bias = weights.get("output_bias", torch.zeros(tokenizers.target.size)).clone()
    bias[byte_pieces(tokenizers)] = NEVER
    return replace(config, output_bias=True), {**weights, "output_bias": bias}


def byte_pieces(tokenizers: TokenizerPair) -> list[int]:
    """Returns the ids of the target's byte pieces."""
    return [i for i in range(tokenizers.target.size) if tokenizers.target.is_byte(i)]


def package_folder(from_code: str, to_code: str) -> str:
    return f"translate-{from_code}_{to_code}-1_0"


def write_metadata(folder: Path, from_code: str, to_code: str) -> None:
    """Writes metadata.json into the package's folder."""
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.0",
        "from_code": from_code,
        "from_name": language_name(from_code),
        "to_code": to_code,
        "to_name": language_name(to_code),
        "type": "translate",
        "made_by": f"mt {mt_version()}",
    }
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")  # ASCII, in any locale


def zip_package(folder: Path, file: Path) -> None:
    """Writes the zip of a package's folder, the folder's name included."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        for path in sorted(folder.rglob("*")):
            package.write(path, path.relative_to(folder.parent))


def is_own_package(file: Path) -> bool:
    """Returns whether mt wrote the file."""
    try:
        with zipfile.ZipFile(file) as package:
            names = [name for name in package.namelist() if name.count("/") == 1 and name.endswith("/metadata.json")]
            return bool(names) and str(json.loads(package.read(names[0])).get("made_by", "")).startswith("mt ")
    except (OSError, zipfile.BadZipFile, zlib.error, ValueError, AttributeError, RuntimeError):  # the last: encrypted
        return False


def language_name(code: str) -> str:
    """Returns the English name of a common language code, or the code itself."""
    names = {
        "ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek", "en": "English",
        "es": "Spanish", "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi",
        "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "nl": "Dutch",
        "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sv": "Swedish", "tr": "Turkish",
        "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese",
    }  # fmt: skip
    return names.get(code, code)
