"""Dataclasses from nested plain dicts (composed YAML, a run's config.yaml) and back; only the standard library.

Unknown keys and wrong types are refused, naming the key and the remedy.
"""

import dataclasses
import difflib
import math
import types
import typing
from typing import Any, Literal, TypeVar

T = TypeVar("T")


def suggest(word: str, known: typing.Iterable[str]) -> str:
    """Returns '; did you mean X?' for the nearest known word, or '' where none is near."""
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if not near:  # compare the last part of a dotted key as well
        leaf = {key.rsplit(".", 1)[-1]: key for key in known}
        near = [leaf[m] for m in difflib.get_close_matches(word.rsplit(".", 1)[-1], leaf, n=1, cutoff=0.6)]
    return f"; did you mean {near[0]}?" if near else ""


def known_keys(cls: type, prefix: str = "") -> list[str]:
    """Returns the dotted names of all settings below a dataclass, groups included."""
    keys = []
    for name, hint in typing.get_type_hints(cls).items():
        keys.append(prefix + name)
        if dataclasses.is_dataclass(hint):
            keys += known_keys(hint, f"{prefix}{name}.")
    return keys


def from_mapping(cls: type[T], mapping: Any, key: str = "") -> T:
    """Returns an instance of the dataclass `cls` filled from nested dicts.

    Missing keys take their defaults. Raises ValueError for an unknown key (with the nearest known one), a value of the
    wrong type, or a value out of range.
    """
    if not isinstance(mapping, dict):
        raise ValueError(f"{key or 'the configuration'}: expected keys and values, got {mapping!r}")
    hints = typing.get_type_hints(cls)
    prefix = f"{key}." if key else ""
    for name in mapping:
        if name not in hints:
            raise ValueError(
                f"unknown setting {prefix}{_one_line(name)}{suggest(prefix + str(name), known_keys(cls, prefix))}"
            )
    return cls(**{name: _convert(hints[name], value, prefix + name) for name, value in mapping.items()})


def to_mapping(config: Any) -> dict[str, Any]:
    """Returns nested plain dicts, from which `from_mapping` makes an equal dataclass."""
    return dataclasses.asdict(config)


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())


def _convert(hint: Any, value: Any, key: str) -> Any:
    if hint is Any:  # what it may be depends on a setting's name, and is checked where that is known
        return value
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):  # only X | None is used
        if value is None:
            return None
        return _convert(next(arg for arg in typing.get_args(hint) if arg is not type(None)), value, key)
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            near = suggest(str(value), choices)
            raise ValueError(f"{key}={_one_line(value)}: must be one of {', '.join(choices)}{near}")
        return value
    if origin is dict:
        item_hint = typing.get_args(hint)[1]
        of_corpora = dataclasses.is_dataclass(item_hint)  # or stages
        if not isinstance(value, dict):
            expected = "corpora by name, such as {main: {path: a.tsv}}" if of_corpora else "names with values: {a: 0.5}"
            raise ValueError(f"{key}={value!r}: expected {expected}")
        for name in map(str, value) if of_corpora else ():
            if not name.strip(". ") or "/" in name:
                raise ValueError(
                    f"{key}: {name!r} names a corpus and its results: it must hold a letter or digit, and no '/'"
                )
        return {str(name): _convert(item_hint, item, f"{key}.{name}") for name, item in value.items()}
    if dataclasses.is_dataclass(hint):
        return from_mapping(hint, value, key)
    if hint is bool and isinstance(value, bool):
        return value
    if hint is int and not isinstance(value, bool):
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            return int(value)
    if hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:  # YAML 1.1 reads 1e-3 as a string
            number = float(value)
        except (ValueError, OverflowError):  # no number, or a whole one beyond all floats
            number = math.nan
        if math.isfinite(number):
            return number
    if hint is str and isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    raise ValueError(f"{key}={value!r}: must be {words[hint]}")
