"""`Spec`: the frozen, closed, camelCase base model of everything a manifest declares.

A field's annotation carries its verdict, so that checking, the generated
reference and the code cannot disagree:

- no marker: *used*
- `Hint("what happens instead")`: accepted; `dataflow check` notes what happens instead
- `Refused("why", allowed=...)`: any other value than the allowed ones is a finding
- `Needs("other_field")`: without effect unless that one is set, which is a note
- `Requires("other_field")`: a finding unless that one is set
- `Excludes("other_field")`: a finding where that one is set too
- `Addition()`: ours, not the DataFlow Operator's; marked in the generated reference
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

Mark = TypeVar("Mark")
RULE = "rule"
"""The type of pydantic's error for a broken rule: a sentence of our own, without a value."""


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
class Requires:
    """The field may be set only where another one is set, too: a finding at its key says so."""

    other: str
    """The other field, by its name in Python."""
    when: Any = None
    """The only value that requires the other field; None: every value but the default."""


@dataclass(frozen=True)
class Excludes:
    """The field may not be set beside another one: a finding at the other's key says so."""

    field: str
    """The other field, by its name in Python."""


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

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Editors show `errorMessage` where the field is written."""
        return {"enum": list(self.allowed), "errorMessage": f"not supported yet: {self.why}"}

    def _check(self, value: Any) -> Any:
        if value in self.allowed:
            return value
        raise PydanticCustomError("refused", "not supported yet: {why}", {"why": self.why})


class Written(ABC):
    """An option that is text with a grammar of its own: `parse` reads it, `text` is written out."""

    text: str

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self: ...

    def remarks(self) -> Iterator[str]:
        """Returns what `dataflow check` notes about a text that can be read."""
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
        defer_build=True,  # most of what is imported is in no manifest
    )

    def remarks(self) -> Iterator[tuple[str, str]]:
        """(field, what happens instead) where a field's value decides about it."""
        return iter(())

    def places_of_secrets(self) -> Iterator[tuple[str, str]]:
        """(field, value) of what may name a place of Secrets of a namespace.

        Such places are files below DATAFLOW_SECRETS, and variables DATAFLOW_SECRET__NAMESPACE__...

        Called when manifests are checked and when a flow is opened, which refuse those of a
        namespace that the flow must not use. A value that cannot be read yields nothing.
        """
        return iter(())

    def broken_rules(self) -> Iterator[str]:
        """Every rule between fields that their values break, as a sentence.

        Called once the fields are valid, each by itself. A sentence that begins with a key is
        reported at that key. It is shown as it is, so it names no value that may be secret.
        Overridden with `yield from super().broken_rules()` first.
        """
        return iter(())

    @model_validator(mode="after")
    def _rules_kept(self) -> Self:
        """All that is broken at once: each `Requires` and `Excludes`, and each rule."""
        errors = [*_unmet_rules(self), *(_rule_error((), rule) for rule in self.broken_rules())]
        if errors:
            raise ValidationError.from_exception_data(type(self).__name__, errors, hide_input=True)
        return self


def _rule_error(place: tuple[str, ...], sentence: str) -> InitErrorDetails:
    error = PydanticCustomError(RULE, "{error}", {"error": sentence})
    return InitErrorDetails(type=error, loc=place, input=None)


def _unmet_rules(spec: Spec) -> Iterator[InitErrorDetails]:
    for name, field in type(spec).model_fields.items():
        value, key = getattr(spec, name), field.alias or name
        for mark in marks(field, Requires):
            if _requiring(mark, field, value) and not getattr(spec, mark.other):
                condition = key if mark.when is None else f"{key} {mark.when}"
                yield _rule_error((key,), f"{condition} requires {_as_set(spec, mark.other)}")
        for other in (mark.field for mark in marks(field, Excludes) if value is not None):
            if other in spec.model_fields_set and getattr(spec, other):
                other_key = type(spec).model_fields[other].alias or other
                yield _rule_error((other_key,), f"is set beside {key}: keep one of the two")


def _requiring(mark: Requires, field: FieldInfo, value: Any) -> bool:
    if mark.when is not None:
        return bool(value == mark.when)
    return bool(value != field.get_default(call_default_factory=True, validated_data={}))


def _as_set(spec: Spec, name: str) -> str:
    key = type(spec).model_fields[name].alias or name
    return f"{key}: true" if isinstance(getattr(spec, name), bool) else key


def hints(spec: Spec, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, what happens instead) for every hint field the manifest really set."""
    remarks = list(spec.remarks())
    for name, field in type(spec).model_fields.items():
        if name not in spec.model_fields_set:
            continue
        here = f"{path}.{field.alias or name}".lstrip(".")
        yield from ((here, mark.instead) for mark in marks(field, Hint))
        yield from ((here, say) for field_name, say in remarks if field_name == name)
        yield from (
            (here, say) for mark in marks(field, Needs) for say in _missing_option(spec, mark)
        )
        yield from _nested_hints(getattr(spec, name), here)


def _missing_option(spec: Spec, mark: Needs) -> Iterator[str]:
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


def one_or_many(value: Any) -> Any:
    """A single text as a tuple of one, a list as a tuple; nothing as an empty tuple.

    Called when a manifest is validated, by options that take one text or several.

    Args:
        value: as the manifest has it.

    Returns:
        The tuple; a number as text is, and what is none of these as it is, for the finding of the
        field's own type.
    """
    if isinstance(value, list):
        return tuple(value)
    return (value,) if isinstance(value, str | int | float) else value or ()


OneOrMany = BeforeValidator(one_or_many, json_schema_input_type=str | list[str])
"""Of a field that holds texts: a manifest may write a single text instead of a list."""
