"""Validation in the product's voice: what is wrong, what is allowed, what was probably meant.

A manifest is validated as the JSON that Kubernetes makes of it, strictly: a quoted number is not a
number, a key's only spelling is camelCase. Values are never part of a message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path as File
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dataflow_assets.errors import Finding
from dataflow_assets.errors.likely_names import did_you_mean, suggestion
from dataflow_assets.languages.common.documents import Document, Path
from dataflow_assets.languages.common.keys import models_at, names, unknown_key
from dataflow_assets.languages.common.kinds import wrong_kind
from dataflow_assets.spec import RULE, Spec

AnySpec = TypeVar("AnySpec", bound=Spec)

_WORD = re.compile(r"[a-z]+|[A-Z]+|[a-z]+([A-Z][a-z]*)+")
COLUMN_NAME = r"^[^\x00]+$"
MOST_FINDINGS = 100  # of one block: each is looked up with care, and nobody reads more
_ALLOWED = {
    "string_type": "text",
    "string_sub_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
}
_SCALARS = frozenset({"string_type", "int_type", "int_from_float", "float_type", "bool_type"})
_SAYS = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "finite_number": "must be a finite number",
    "string_too_long": "must have at most {max_length} characters",
    "too_long": "must have at most {max_length} entries",
}


@dataclass(frozen=True)
class _Trouble:
    """One pydantic error with its place in the document; `arms` are a union's alternatives."""

    path: Path
    arms: int
    details: ErrorDetails


def validate(
    model: type[AnySpec], document: Document, base: Path = ()
) -> tuple[AnySpec | None, list[Finding]]:
    """The document's value at `base` as a model, or every reason why it is none.

    Nothing there counts as an empty block: what is required is then missing in it.
    """
    value = document.get(*base)
    text = json.dumps({} if value is None else value)
    folder = File(document.file).parent
    spec, errors = _try(model, text, folder, strict=False)
    _, strict = _try(model, text, folder, strict=True)
    errors = [e for e in strict if e["type"] in _SCALARS] + errors
    return (None if errors else spec), _findings(errors, model, document, base)


def _try(
    model: type[AnySpec], text: str, folder: File, *, strict: bool
) -> tuple[AnySpec | None, list[ErrorDetails]]:
    """Once more strictly only for scalars: strictly, a model's own validators refuse lists."""
    try:
        value = model.model_validate_json(
            text, strict=strict, context={"folder": folder}, by_alias=True, by_name=False
        )
    except ValidationError as error:
        return None, error.errors(include_url=False, include_input=False)
    return value, []


def _findings(
    errors: list[ErrorDetails], model: type[Spec], document: Document, base: Path
) -> list[Finding]:
    troubles = [_locate(details, document, base) for details in errors]
    groups: dict[Path, list[_Trouble]] = {}
    for trouble in _deepest(troubles):
        if any(trouble.path[: size + 1] in document.spoiled for size in range(len(trouble.path))):
            continue
        group = groups.setdefault(trouble.path, [])
        if not (group and trouble.details["type"].endswith("_parsing")):
            group.append(trouble)
    shown = islice(groups.items(), MOST_FINDINGS)
    findings = [
        _finding(path, some, model, document, base)
        for path, group in shown
        for some in _apart(group)
    ]
    if (more := len(groups) - MOST_FINDINGS) > 0:
        findings.append(document.finding(base, f"and {more} more mistakes in this block", key=True))
    return findings


def _apart(group: list[_Trouble]) -> list[list[_Trouble]]:
    """Rules that are broken at one place are a finding each; all else is one."""
    rules = all(trouble.details["type"] == RULE for trouble in group)
    return [[trouble] for trouble in group] if rules else [group]


def _locate(details: ErrorDetails, document: Document, base: Path) -> _Trouble:
    """Walks pydantic's location along the document; what is not there names a union's arm."""
    path, arms, last = base, 0, len(details["loc"]) - 1
    for index, part in enumerate(details["loc"]):
        here = (*path, part)
        if here in document.places or (index == last and details["type"] == "missing"):
            path = here
        else:
            arms += 1
    return _Trouble(path, arms, details)


def _deepest(troubles: list[_Trouble]) -> Iterator[_Trouble]:
    """Without the arms of a union that failed sooner, or lists too short for wrong entries."""
    above = _above(t.path for t in troubles)
    above_arms = _above(t.path for t in troubles if t.arms)
    for trouble in troubles:
        short = trouble.details["type"] == "too_short"
        if trouble.path not in (above if short else above_arms if trouble.arms else ()):
            yield trouble


def _above(paths: Iterable[Path]) -> set[Path]:
    """Every place that one of these is inside of."""
    return {path[:size] for path in paths for size in range(len(path))}


def _finding(
    path: Path, group: list[_Trouble], model: type[Spec], document: Document, base: Path
) -> Finding:
    details = group[0].details
    code = details["type"]
    if code == "extra_forbidden":
        key = details["loc"][-1]  # without a place where a language has made the block
        place = path if path[-1:] == (key,) else (*path, key)
        return document.finding(place, unknown_key(place, model, base), key=True)
    if code == "missing":
        empty = ", but has no value" if path in document.empty else ""
        return document.finding(path, f"is required{empty}", key=True)
    allowed = [_ALLOWED.get(trouble.details["type"]) for trouble in group]
    if all(allowed):
        return document.finding(path, _wrong_kind(dict.fromkeys(map(str, allowed)), path, document))
    if code in {"value_error", "assertion_error"}:
        message = str(details.get("ctx", {}).get("error", "is not allowed"))
        return rule_finding(message, path, models_at(path, model, base), document)
    if code == RULE:
        return _place(details["msg"], path, models_at(path, model, base), document)
    return document.finding(path, _says(details, document.get(*path)))


def rule_finding(
    message: str, path: Path, models: Iterable[type[Spec]], document: Document
) -> Finding:
    """A rule of the connector's own: it stands at the key that its sentence begins with."""
    models = list(models)
    for text in sorted(_texts(document.get(*path)), key=len, reverse=True):
        message = re.sub(rf"(?<![\w/]){re.escape(text)}(?![\w/])", "(value)", message)
    for text in _secrets(document.get(*path), models):
        message = message.replace(text, "(value)")
    return _place(message, path, models, document)


def _place(message: str, path: Path, models: Iterable[type[Spec]], document: Document) -> Finding:
    first = message.split(" ", 1)[0].strip("`:,")
    keys = {name for spec in models for name in names(spec)}
    place = (*path, first) if first in keys else path
    return document.finding(place, message.removeprefix(f"{first}: ") if first in keys else message)


def _secrets(value: Any, models: Iterable[type[Spec]]) -> Iterator[str]:
    """Texts of fields that are secret: hidden wherever they occur, be it inside another word."""
    for spec in models if isinstance(value, dict) else ():
        for name, info in spec.model_fields.items():
            text = value.get(info.alias or name)
            if "SecretStr" in str(info.annotation) and isinstance(text, str) and text:
                yield text


def _texts(value: Any) -> Iterator[str]:
    """Values that a rule's sentence may have quoted, and that may be secret: no plain words."""
    if isinstance(value, dict | list):
        children = value.values() if isinstance(value, dict) else value
        yield from (text for child in children for text in _texts(child))
    elif isinstance(value, str) and len(value) > 3 and not _WORD.fullmatch(value):
        yield value


def _wrong_kind(allowed: Iterable[str], path: Path, document: Document) -> str:
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    return wrong_kind([*allowed], document.get(*path), key)


def _says(details: ErrorDetails, value: Any) -> str:
    code, context = details["type"], details.get("ctx", {})
    if code in _SAYS:
        bounds = {name: str(bound).removesuffix(".0") for name, bound in context.items()}
        return _SAYS[code].format(**bounds)
    if code in {"literal_error", "enum"}:
        names = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        advice = _suggest(value, names) if isinstance(value, str) else ""
        return f"is not one of the allowed values: {', '.join(names)}{advice}"
    if code == "string_pattern_mismatch":
        return _pattern(str(context["pattern"]))
    if code in {"string_too_short", "too_short"}:
        least = context["min_length"]
        return "must not be empty" if least == 1 else f"needs at least {least} entries"
    message = details["msg"]
    return message if message[1:2].isupper() else message[:1].lower() + message[1:]


_ELSEWHERE = {
    "beginning": "earliest",
    "oldest": "earliest",
    "smallest": "earliest",
    "end": "latest",
    "newest": "latest",
    "largest": "latest",
    "int": "int64",
    "integer": "int64",
    "long": "int64",
    "float": "float64",
    "double": "float64",
    "number": "float64",
    "decimal": "float64",
    "text": "string",
    "varchar": "string",
    "boolean": "bool",
}
"""What other tools call a value: what it is called here, where the key takes that."""
_TIMES = frozenset({"timestamp", "timestamptz", "datetime", "date", "time"})


def _suggest(value: str, names: list[str]) -> str:
    if value.casefold() in _TIMES and "int64" in names:
        return "; a time stays text: the step timezone converts times"
    elsewhere = _ELSEWHERE.get(value.casefold())
    return suggestion(elsewhere) if elsewhere in names else did_you_mean(value, names)


def _pattern(pattern: str) -> str:
    if pattern == COLUMN_NAME:
        return "must be the name of a column: not empty, and without the character NUL"
    return f"has a form that is not allowed; it must match {pattern}"
