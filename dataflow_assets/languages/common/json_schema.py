"""JSON Schema of models, for editors: each language describes its documents of YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from dataflow_assets.spec import Spec

Schema = dict[str, Any]
_MODE: Final = "validation"


@dataclass(frozen=True)
class DocumentSchema:
    """The content that a document of a language may have, as editors get it."""

    name: str
    """The definition that says it."""
    definitions: Mapping[str, Any]
    condition: Mapping[str, Any] | None = None
    """A schema that only documents of this language meet; None: whatever meets no other one."""


def definitions(models: Sequence[type[Spec]]) -> tuple[dict[type[Spec], Schema], Schema]:
    """Returns a reference to each model, and the definitions that they refer to."""
    modes: list[tuple[type[Spec], Literal["validation"]]] = [(model, _MODE) for model in models]
    names, found = models_json_schema(modes, schema_generator=_Generator)
    return {model: names[model, _MODE] for model in models}, found["$defs"]


def at(name: str) -> str:
    return f"#/$defs/{name}"


class _Generator(GenerateJsonSchema):
    """Without titles, which only repeat the names of keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        """Defaults that are no JSON (paths, conditions) are left out; nobody need know."""
