"""Tables of the reference: the fields of a block, keys of a file, statements.

Only what does something else than it says is marked.
"""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator, SecretStr
from pydantic.fields import FieldInfo

from dataflow_assets.languages.common.key_tables import Key
from dataflow_assets.records.conditions.condition import Condition
from dataflow_assets.records.paths.path import Path
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.spec import Addition, Hint, Refused, Spec, marks

_PLAIN = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    SecretStr: "text, secret",
    SecretRef: "SecretRef",
    Any: "anything",
    Path: "path",
    Condition: "condition",
}


def nested_blocks(
    spec: type[Spec], path: str, refused: str
) -> Iterator[tuple[str, type[Spec], str]]:
    """Blocks inside a block, each with the refused block that it is in, if any."""
    for name, info in spec.model_fields.items():
        for inner in _specs(info.annotation):
            here = f"{path}.{info.alias or name}".lstrip(".")
            within = refused or (here if marks(info, Refused) else "")
            yield here, inner, within
            yield from nested_blocks(inner, here, within)


def _specs(annotation: Any) -> Iterator[type[Spec]]:
    if inspect.isclass(annotation) and issubclass(annotation, Spec):
        if annotation is not SecretRef:
            yield annotation
        return
    for argument in get_args(annotation):
        yield from _specs(argument)


def block(title: str, spec: type[Spec], where: str = "", refused: str = "") -> str:
    """A heading, what the block is, and its fields."""
    about = inspect.cleandoc(spec.__doc__ or "")
    return "\n".join([title, "", f"{where}{about}", *table(spec, refused), ""])


def table(spec: type[Spec], refused: str = "") -> list[str]:
    """The fields of a block, line by line: first those that must be given.

    A SecretRef is shown beside the field that it fills. `refused`: the block around, if it is.
    """
    fields = {info.alias or name: info for name, info in spec.model_fields.items()}
    twins = {mark.field: name for name, info in fields.items() for mark in marks(info, Fills)}
    needed = {one.field for info in fields.values() for one in marks(info, Fills) if one.required}
    names = sorted(spec.model_fields, key=lambda name: name not in needed)
    fields_by_name = {name: spec.model_fields[name] for name in names}
    shown = {name: info for name, info in fields_by_name.items() if not marks(info, Fills)}
    columns = ["Field", *(["SecretRef"] if twins else []), "Type", "Default", "Meaning"]
    rows = [
        _row(info.alias or name, info, refused, [twins.get(name, "")] if twins else [])
        for name, info in shown.items()
    ]
    head = ["", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return [*head, *rows] if rows else []


def _row(name: str, info: FieldInfo, refused: str, twin: list[str]) -> str:
    addition = ["*Addition.*"] if marks(info, Addition) else []
    meaning = " ".join((info.description or "").split())
    secret = [f"`{one}`" if one else "-" for one in twin]
    cells = (f"`{name}`", *secret, _kind(info.annotation), _default(info))
    text = " ".join([*addition, meaning, *_verdict(info, refused)])
    return "| " + " | ".join(escape(cell) for cell in (*cells, text)) + " |"


def escape(text: str) -> str:
    return text.replace("|", "\\|").strip()


def sentence(text: str) -> str:
    """The half sentences of messages as whole ones; the name of a key stays as it is."""
    first = text.split(maxsplit=1)[0]
    capitalized = text[:1].upper() + text[1:] if first.islower() else text
    return capitalized if capitalized.endswith(".") else f"{capitalized}."


def _verdict(info: FieldInfo, within: str) -> Iterator[str]:
    if within:
        yield f"*Refused* with `{within}`."
        return
    for hint in marks(info, Hint):
        yield f"*Note.* {sentence(hint.instead)}"
    for refused in marks(info, Refused):
        yield f"*Refused.* {sentence(refused.why)}"


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ("", (), {}) or isinstance(value, Spec):
        return "-"
    return f"`{json.dumps(value, default=lambda path: path.text)}`"


def _kind(annotation: Any) -> str:
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        written = any(isinstance(mark, BeforeValidator) for mark in arguments)
        return "text" if written else _kind(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(a) for a in arguments if a is not types.NoneType)
    if origin in (tuple, list, frozenset, set):
        return f"list of {_kind(arguments[0])}"
    if origin in (dict, Mapping):
        return f"mapping to {_kind(arguments[1])}"
    return "block" if list(_specs(annotation)) else "text"


def section(title: str, about: str, keys: Sequence[Key]) -> str:
    head = ["| Key | Default | Meaning |", "|---|---|---|"]
    rows = [
        f"| `{one.name}` | {one.default} | {escape(with_verdict(one.verdict, one.says))} |"
        for one in keys
    ]
    return "\n".join([f"## {title}", "", *([about, ""] if about else []), *head, *rows, ""])


def with_verdict(verdict: str, says: str) -> str:
    """Puts the verdict in front of what is said about a key or a statement, unless it is used."""
    return sentence(says) if verdict == "used" else f"*{verdict.capitalize()}.* {sentence(says)}"


def statements(rows: Iterable[tuple[str, str, str]]) -> str:
    """A table of statements: how each is written, its verdict, what is said about it."""
    lines = [f"| {written} | {with_verdict(verdict, says)} |" for written, verdict, says in rows]
    return "\n".join(["| Statement | Meaning |", "|---|---|", *lines])
