"""`Spec`: the frozen, closed, camelCase base model of everything a manifest declares.

A field's annotation carries its verdict, so that checking, the generated
reference and the code cannot disagree:

- no marker: *used*
- `Hint("what happens instead")`: accepted; `dataflow check` notes what happens instead
- `Refused("why", allowed=...)`: any other value than the allowed ones is a finding
- `Needs("other_field")`: without effect unless that one is set, which is a note
- `Addition()`: ours, not the DataFlow Operator's; marked in the generated reference
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

Mark = TypeVar("Mark")


@dataclass(frozen=True)
class Hint:
    """The field is accepted; `instead` says what this engine does about it."""

    instead: str


@dataclass(frozen=True)
class Needs:
    """The field has an effect only where another one is set; `dataflow check` notes it."""

    other: str
    """The other field, by its name in Python."""
    value: Any = True


@dataclass(frozen=True)
class Addition:
    """The field is an addition of this product to the DataFlow Operator's manifest."""


@dataclass(frozen=True)
class Refused:
    """The field is known but does not work yet: every value but the allowed ones is a finding."""

    why: str
    allowed: tuple[Any, ...] = (None,)

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def _check(self, value: Any) -> Any:
        if value in self.allowed:
            return value
        raise PydanticCustomError("refused", "not supported yet: {why}", {"why": self.why})


class Written(ABC):
    """An option that is text with a grammar of its own: `parse` reads it, `text` is written out."""

    text: str

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, which becomes a finding."""

    def remarks(self) -> Iterator[str]:
        """What `dataflow check` notes about a text that can be read."""
        return iter(())

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            cls.parse,
            core_schema.str_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda one: one.text),
        )


class Spec(BaseModel):
    """Declared data. Equal declarations are equal objects; unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        arbitrary_types_allowed=True,
    )

    def remarks(self) -> Iterator[tuple[str, str]]:
        """(field, what happens instead) where a field's value decides about it."""
        return iter(())


def hints(spec: Spec, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, what happens instead) for every hint field the manifest really set."""
    told = dict(spec.remarks())
    for name, field in type(spec).model_fields.items():
        if name not in spec.model_fields_set:
            continue
        here = f"{path}.{field.alias or name}".lstrip(".")
        yield from ((here, mark.instead) for mark in marks(field, Hint))
        yield from [(here, told[name])] if name in told else []
        yield from ((here, say) for mark in marks(field, Needs) for say in _lacking(spec, mark))
        yield from _nested_hints(getattr(spec, name), here)


def _lacking(spec: Spec, mark: Needs) -> Iterator[str]:
    if getattr(spec, mark.other) != mark.value:
        other = type(spec).model_fields[mark.other].alias
        value = str(mark.value).lower() if isinstance(mark.value, bool) else mark.value
        yield f"has no effect without {other}: {value}"


def _nested_hints(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Spec):
        yield from hints(value, path)
    elif isinstance(value, Written):
        yield from ((path, remark) for remark in value.remarks())
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _nested_hints(item, f"{path}[{index}]")


def marks(field: FieldInfo, kind: type[Mark]) -> list[Mark]:
    """The markers of one kind in a field's annotation."""
    return [mark for mark in field.metadata if isinstance(mark, kind)]
