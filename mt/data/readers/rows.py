"""Rows with named fields, whatever file they come from: one text for each side."""

from typing import Any

from mt.data.sides import Pair, Sides, one_line, shown


def row_pair(row: dict[str, Any], sides: Sides, place: str) -> Pair:
    """Returns the texts of both fields of a row. Raises ValueError, naming the place, where one is no text."""
    source_field, target_field = sides.fields
    return (
        _field_text(row, source_field, f"{sides.name}.source_field", place),
        _field_text(row, target_field, f"{sides.name}.target_field", place),
    )


def _field_text(row: dict[str, Any], field: str, setting: str, place: str) -> str:
    """Returns the text of a field of the row, or of the dict in its field "translation"."""
    translation = row.get("translation")
    if field not in row and isinstance(translation, dict):
        row = translation
    if field not in row:
        raise missing_field(field, list(row), setting, place)
    text = row[field]
    if not isinstance(text, str):
        value = "" if isinstance(text, dict | list) else f" {str(text)[:40]!r}"  # nested deeply, str would fail
        raise ValueError(f"{place}: field {field!r} must be text, got {type(text).__name__}{value}")
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            message = f"{place}: field {field!r} has half a surrogate pair, which is not valid Unicode"
            raise ValueError(message) from error
    return one_line(text)


def missing_field(field: str, fields: list[str], setting: str, place: str) -> ValueError:
    """Returns the error of a row, or a header, that lacks a field."""
    return ValueError(f"{place}: no field {field!r}; there are {shown(fields)}: set {setting}")
