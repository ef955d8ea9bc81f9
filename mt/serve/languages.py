"""Names of languages, and which one a text is in."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from babel import Locale, UnknownLocaleError

from mt.languages import primary_language


def language_name(code: str) -> str:
    """Returns the English name of a code such as zh or zh_Hans; the code itself where it has none."""
    try:
        return Locale.parse(code.replace("-", "_")).get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def detect(text: str, codes: Sequence[str]) -> list[dict[str, Any]]:
    """Returns {language, confidence}, in per cent, of the languages among `codes` that a text can be in, best first.

    Confidence counts all languages that are known, so that a text in none of these has little. The last resort is the
    first code, with 0.
    """
    shares = dict(_identifier().rank(text)) if text.strip() else {}
    found = [
        {"language": code, "confidence": round(100 * float(shares.get(primary_language(code), 0.0)), 1)}
        for code in codes
    ]
    likely = [each for each in found if each["confidence"] > 0] or found[:1]
    return sorted(likely, key=lambda each: -each["confidence"])


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
