"""Which language a text is in, by lingua: its models are part of the package, so that nothing is fetched."""

from collections.abc import Callable, Sequence

from mt.config import DataConfig

_LETTERS = 20  # of shorter texts no identifier can tell the language


def wrong_language(data: DataConfig) -> Callable[[Sequence[tuple[str, str]]], list[str | None]]:
    """Returns the filter, of many pairs at once, of sides that are hardly in their language.

    A side of 20 or more letters is judged: by the probability of its language among all that lingua knows. Raises
    ValueError where lingua is missing or does not know a language.
    """
    try:
        from lingua import LanguageDetectorBuilder
    except ImportError as error:
        raise ValueError(
            "data.cleaning.min_language_confidence: the package lingua is missing: pip install 'mt[cleaning]'"
        ) from error
    languages = [_known_language(data, side) for side in ("source", "target")]
    detector = LanguageDetectorBuilder.from_all_languages().build()

    def reasons(pairs: Sequence[tuple[str, str]]) -> list[str | None]:
        found: list[str | None] = [None] * len(pairs)
        for side, name in ((1, "target"), (0, "source")):  # of two wrong sides the source is named
            judged = [i for i, pair in enumerate(pairs) if sum(map(str.isalpha, pair[side])) >= _LETTERS]
            texts = [pairs[i][side] for i in judged]
            for i, confidence in zip(
                judged, detector.compute_language_confidence_in_parallel(texts, languages[side]), strict=True
            ):
                if confidence < data.cleaning.min_language_confidence:
                    found[i] = f"wrong {name} language"
        return found

    return reasons


def _known_language(data: DataConfig, side: str) -> object:
    """Returns lingua's own name of a side's language."""
    from lingua import Language

    code = getattr(data, f"{side}_language")
    first = code.replace("_", "-").split("-")[0].lower()
    known = {language.iso_code_639_1.name.lower(): language for language in Language.all()}
    known |= {language.iso_code_639_3.name.lower(): language for language in Language.all()}
    known |= {"no": known["nb"], "cmn": known["zh"]}
    if first not in known:
        names = " ".join(sorted(name for name in known if len(name) == 2))
        raise ValueError(
            f"data.{side}_language={code}: data.cleaning.min_language_confidence needs a language that lingua knows "
            f"({names}): set it to 0"
        )
    return known[first]
