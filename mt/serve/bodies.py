"""What clients send: read as JSON or as a form, whichever it is, and checked.

Names are those of the LibreTranslate API, and more of our own. An unknown one is refused.
"""

from typing import Any, Generic, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import Request

from mt.serve.limits import Refused

_MOST_FIELDS = 1000  # of a form
_LONGEST_CODE = 35  # as BCP 47 has it


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    api_key: str | None = Field(None, description="Where the server asks for one; or the header Authorization: Bearer.")


class DetectBody(Body):
    q: str = Field(description="A text.")


class Pair(Body):
    source: str = Field(
        max_length=_LONGEST_CODE, description="Code of the source language; auto: to be detected (/translate only)."
    )
    target: str = Field(max_length=_LONGEST_CODE, description="Code of the target language.")


class TranslateBody(Pair):
    q: str | list[str] = Field(description="A text, or a list of texts.")
    format: Literal["text", "html"] = Field("text", description="Of the texts.")
    alternatives: int = Field(0, ge=0, description="So many more translations, or fewer where no more differ.")
    beam_size: int | None = Field(None, ge=1, description="Of the search; 1 is greedy. Default: the server's.")
    glossary: dict[str, str] = Field({}, description="Target terms by source term.")
    stream: bool = Field(
        False,
        description='Answer in lines of JSON: a {"source", "translation"} for each sentence as it is translated, white '
        "space in front; joined they are the text and its translation. An error on the way is a last line.",
    )
    secret: str | None = Field(None, description="Is sent by LibreTranslate's own page, and means nothing here.")


class AlternativesBody(Pair):
    q: str = Field(description="A sentence.")
    prefix: str = Field("", description="The beginning of a translation.")
    count: int = Field(5, ge=1, description="How many words that can follow, at most.")


class DetailsBody(Pair):
    q: list[str] = Field(description="Sentences.")
    translations: list[str] = Field(description="A translation of each, from the model or not.")


class Translated(BaseModel):
    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: dict[str, Any] | list[dict[str, Any]] | None = None


class Failed(BaseModel):
    error: str


Wanted = TypeVar("Wanted", bound=Body)


class Read(Generic[Wanted]):
    """Returns the body of a request, checked. Raises Refused (400) naming the field that is wrong."""

    def __init__(self, kind: type[Wanted]) -> None:
        self.kind = kind

    async def __call__(self, request: Request) -> Wanted:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if media_type in ("application/x-www-form-urlencoded", "multipart/form-data"):
                return self.kind.model_validate(await _form(request, media_type))
            return self.kind.model_validate_json(await request.body() or b"{}")
        except ValidationError as error:
            raise Refused(400, _describe(error)) from error

    def described(self) -> dict[str, Any]:
        """Returns what FastAPI is to write about the body in openapi.json."""
        media_types = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
        schema = self.kind.model_json_schema()
        return {"requestBody": {"required": True, "content": {name: {"schema": schema} for name in media_types}}}


async def _form(request: Request, media_type: str) -> dict[str, Any]:
    """Returns the fields of the address and of the body. A field that comes more than once is a list."""
    if media_type == "multipart/form-data":
        try:
            (await request.body()).decode()
        except UnicodeDecodeError as error:
            raise Refused(400, f"the form cannot be read: {error.reason} of UTF-8 at byte {error.start + 1}") from error
        found = (await request.form(max_files=0, max_fields=_MOST_FIELDS, max_part_size=10**9)).multi_items()
    else:
        try:
            found = parse_qsl(
                (await request.body()).decode(),
                keep_blank_values=True,
                strict_parsing=False,
                errors="strict",
                max_num_fields=_MOST_FIELDS,
            )
        except ValueError as error:  # no UTF-8, or too many fields
            raise Refused(400, f"the form cannot be read: {' '.join(str(error).split())}") from error
    fields: dict[str, Any] = {}
    for name, value in [*request.query_params.multi_items(), *found]:
        if isinstance(value, UploadFile):
            raise Refused(400, f"{name}: must be a text, not a file")
        if name in fields:
            before = fields[name]
            fields[name] = [*before, value] if isinstance(before, list) else [before, value]
        else:
            fields[name] = value
    return fields


def _describe(error: ValidationError) -> str:
    """Returns one line on the first thing that is wrong."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"][:1])
    if first["type"] == "missing":
        return f"Invalid request: missing {name} parameter"
    if first["type"] == "extra_forbidden":
        return f"{name}: there is no such parameter"
    reason = first["msg"]
    if name == "q" and len(first["loc"]) > 1:
        reason = "must be a text or a list of texts"
    elif name == "glossary":
        reason = 'must be an object with a text as target term for each source term, such as {"china": "中国"}'
    return f"{name or 'the body'}: {reason}"
