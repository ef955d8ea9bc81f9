"""Which scripts a language is written in, and how much of a text is."""

import regex

# ISO 15924 codes of scripts by language. A language code that names a script (sr-Latn) needs no row.
_LATIN = (
    "af az bs ca cs cy da de en eo es et eu fi fo fr fy ga gd gl ha hr ht hu id ig is it jv la lb lt lv mg mi ms mt nb"
    " nl nn no oc om pl pt rm ro rw sk sl sm sn so sq st su sv sw tk tl tn tr ts uz vi wo xh yo zu ace ast bcl ban ceb"
    " fil fur hmn hsb ilo kab lij lmo ltg nds nso pag pap scn szl tpi vec war"
)
_CYRILLIC = "ab av ba be bg ce cv kk ky mk mn os ru rue sah tg tt tyv udm uk"
_SCRIPTS = {
    **dict.fromkeys(_LATIN.split(), "Latn"),
    **dict.fromkeys(_CYRILLIC.split(), "Cyrl"),
    **dict.fromkeys("ar arz azb ckb fa ks pnb ps sd ug ur".split(), "Arab"),
    **dict.fromkeys("bh bho hi kok mai mr ne sa".split(), "Deva"),
    **dict.fromkeys("zh cmn yue wuu lzh".split(), "Hani"),
    **dict.fromkeys("he yi".split(), "Hebr"),
    **dict.fromkeys("am ti".split(), "Ethi"),
    **dict.fromkeys("as bn".split(), "Beng"),
    "sr": "Cyrl Latn", "sh": "Cyrl Latn", "ku": "Latn Arab", "pa": "Guru Arab",
    "ja": "Hani Hira Kana", "ko": "Hang Hani", "bo": "Tibt", "dz": "Tibt", "dv": "Thaa", "el": "Grek", "gu": "Gujr",
    "hy": "Armn", "ka": "Geor", "km": "Khmr", "kn": "Knda", "lo": "Laoo", "ml": "Mlym", "my": "Mymr", "or": "Orya",
    "si": "Sinh", "ta": "Taml", "te": "Telu", "th": "Thai",
}  # fmt: skip
_TOGETHER = {"Hans": "Hani", "Hant": "Hani", "Jpan": "Hani Hira Kana", "Kore": "Hang Hani", "Hrkt": "Hira Kana"}
_LETTER = regex.compile(r"\p{L}")


def scripts_of(language: str) -> list[str]:
    """Returns the ISO 15924 codes of the scripts of a language code such as zh, pt_BR or sr-Latn.

    Raises ValueError for a language that is not known and names no script.
    """
    first, *subtags = language.replace("_", "-").split("-")
    named = [subtag.title() for subtag in subtags if len(subtag) == 4 and subtag.isalpha()]
    scripts = _TOGETHER.get(named[0], named[0]) if named else _SCRIPTS.get(first.lower(), "")
    if not scripts:
        raise ValueError(f"the script of {language} is not known: write it behind the code, as in {first}-Latn")
    return scripts.split()


class ScriptShare:
    """How much of a text is written in the scripts of a language. Raises ValueError for an unknown script."""

    def __init__(self, language: str) -> None:
        scripts = scripts_of(language)
        own = "".join(rf"\p{{Script={script}}}" for script in scripts)
        try:  # letters that several scripts share fit everywhere
            self._foreign = regex.compile(rf"[\p{{L}}--[{own}\p{{Script=Zyyy}}\p{{Script=Zinh}}]]", regex.V1)
        except regex.error as error:
            raise ValueError(f"language {language}: there is no script {scripts[0]} in Unicode") from error
        self._ascii_fits = "Latn" in scripts

    def of(self, text: str) -> float:
        """Returns the share of the text's letters that belong to the language's scripts; 1 for a text without any."""
        if self._ascii_fits and text.isascii():
            return 1.0
        foreign = len(self._foreign.findall(text))
        return 1 - foreign / len(_LETTER.findall(text)) if foreign else 1.0
