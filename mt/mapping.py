"""Dataclasses from nested plain dicts (composed YAML, a run's config.yaml) and back, and such dicts from JSON files.

Unknown keys and wrong types are refused, naming the key and the remedy. Only the standard library is imported here.
"""

import dataclasses
import difflib
import json
import math
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar

T = TypeVar("T")
_MAY_BE_EMPTY = "tags"  # the name of settings that hold any number of words


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


def field_type(cls: type, key: str) -> Any:
    """Returns the type of a setting by its dotted name, or None where there is none."""
    name, _, rest = key.partition(".")
    hint = typing.get_type_hints(cls).get(name)
    return field_type(hint, rest) if rest and dataclasses.is_dataclass(hint) else None if rest else hint


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


def read_json(file: Path) -> dict[str, Any]:
    """Returns the values of a JSON file by name. Raises ValueError, naming the file, where there are none to read."""
    try:
        values = json.loads(file.read_bytes())
    except OSError as error:
        raise ValueError(f"{file}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: damaged ({_one_line(error)})") from error
    if not isinstance(values, dict):
        raise ValueError(f"{file}: damaged (must hold names and values)")
    return values


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())


def _named(hint: Any, value: Any, key: str) -> Any:
    """Returns the value of a key that the user chose, which its dataclass does not know: messages get it here."""
    try:
        return _convert(hint, value, key)
    except ValueError as error:
        raise ValueError(str(error) if key in str(error) else f"{key}: {error}") from None


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
                    f"{key}: {name!r} names a corpus and its results, or a stage: it must hold a letter or digit, and "
                    "no '/'"
                )
        return {str(name): _named(item_hint, item, f"{key}.{name}") for name, item in value.items()}
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
    if hint is str and isinstance(value, str | int) and not isinstance(value, bool):
        text = str(value)
        if not text.strip() and key.rpartition(".")[2] != _MAY_BE_EMPTY:  # what an unset variable of a shell leaves
            raise ValueError(f"{key}={value!r}: is empty: give a value, or leave it out")
        if text.startswith("~/"):
            raise ValueError(f"{key}={text}: ~ means the home folder in a shell alone: write the folder's whole name")
        return text
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text; in YAML, in quotes"}
    raise ValueError(f"{key}={value!r}: must be {words[hint]}")
