"""Language codes: what they say about the way a language is written."""

import re

CHINESE = ("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh")
JAPANESE = ("ja", "jpn")
WITHOUT_SPACES = {*CHINESE, *JAPANESE}  # between words and between sentences


def primary_language(code: str) -> str:
    """Returns the language of a code without script and country: zh of zh_CN and zh-Hans."""
    return re.split("[-_]", code.strip().lower())[0]
