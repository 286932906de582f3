"""A JSON Schema with the schemas that it refers to, as a schema registry keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NoReturn
from urllib.parse import quote, urljoin

import jsonschema_rs

_BASE = "json-schema:///"  # of a schema without an address of its own
ADDING = (
    *("properties", "patternProperties", "allOf", "anyOf", "oneOf", "if", "then", "else"),
    *("dependentSchemas", "dependencies"),
)
"""Keywords by which an object may have properties of more names."""
_MOST = 100  # references of references
_MOST_PARTS = 20_000
"""Schemas of which one may consist: a few $refs, each used twice by the next one, make billions."""


@dataclass(frozen=True)
class JsonSchemaNode:
    """A schema inside a document, and what finds the schemas that it refers to."""

    schema: Any
    resolver: jsonschema_rs.Resolver
    parts: Iterator[int]
    """Counts the schemas of the document that were looked at, each time that they were."""
    around: tuple[tuple[str, Any], ...] = ()
    """The schemas that hold for the same value, from the outermost on: address and schema."""

    def inner(self, schema: Any) -> JsonSchemaNode:
        """One of the schemas that it holds, of another value: of a property, or of an element."""
        return replace(self, schema=schema, around=())

    def choice(self, schema: Any, keyword: str) -> JsonSchemaNode:
        """One of the schemas that it holds of the same value, under this keyword.

        Raises:
            ValueError where one of these leads back to a schema that it is in: whether a value is
            allowed would never be known.
        """
        own = (self.resolver.base_uri, self.schema)
        if own in self.around:
            raise ValueError(
                f"{keyword} leads back to the schema that it is in: take the $ref to that schema "
                f"out of {keyword}"
            )
        return replace(self, schema=schema, around=(*self.around, own))

    def resolve(self) -> JsonSchemaNode:
        """The schema that it refers to, or itself.

        An `allOf` of one schema, with nothing beside it that says what values are, is that schema.

        Raises:
            ValueError where a reference leads nowhere, or in a circle, or has something beside it
            that may add properties, or where the document has more parts than can be looked at.
        """
        if next(self.parts) > _MOST_PARTS:
            raise ValueError(
                f"the schema has more than {_MOST_PARTS} parts when its $refs are followed: use "
                "fewer of them inside each other"
            )
        node = self
        for _ in range(_MOST):
            schema = node.schema
            if not isinstance(schema, dict):
                return node
            if "$ref" in schema:
                if beside := [key for key in ADDING if key in schema]:
                    raise ValueError(f"{beside[0]} beside $ref has no columns: list all properties")
                node = node._follow(schema["$ref"])
            elif (only := _only(schema)) is not None:
                node = replace(node, schema=only)
            else:
                return node
        raise ValueError("a $ref refers to itself")

    def _follow(self, reference: str) -> JsonSchemaNode:
        try:
            target = self.resolver.lookup(reference)
        except jsonschema_rs.ReferencingError as error:
            raise ValueError(f"$ref {reference}: {error}") from None
        return replace(self, schema=target.contents, resolver=target.resolver)


def document(text: str, references: Sequence[tuple[str, str]] = ()) -> JsonSchemaNode:
    """A schema as a whole; nothing is fetched from anywhere.

    Called on the driver, once for each version of a schema that a table has not seen.

    Args:
        text: of the schema.
        references: names, as its `$ref`s have them once these are decoded, and texts.

    Raises:
        ValueError where a text is no JSON Schema, or refers to what is not among the references.
    """
    root = _parse(text)
    own = root.get("$id") if isinstance(root, dict) else None
    base = urljoin(_BASE, own or "")
    others = [(urljoin(base, _address(name)), _parse(other)) for name, other in references]
    try:
        schemas = jsonschema_rs.Registry([(base, root), *others], retriever=_not_fetched)
        for one in (root, *(other for _, other in others)):
            jsonschema_rs.meta.validate(one, registry=schemas)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        line = (str(error).splitlines() or [""])[0]
        raise ValueError(f"no JSON Schema that can be used: {line}") from None
    return JsonSchemaNode(root, schemas.resolver(base), count(1))


def _address(name: str) -> str:
    """A name as a `$ref` writes it: a registry allows blanks in names, an address has none."""
    return quote(name, safe=":/?#[]@!$&'()*+,;=%")


def _only(schema: Mapping[str, Any]) -> Any:
    """The one schema of `allOf` where nothing beside it says what values are."""
    parts = schema.get("allOf", ())
    beside = ({"type", "items", "enum", *ADDING} - {"allOf"}) & schema.keys()
    return parts[0] if len(parts) == 1 and not beside else None


def _not_fetched(address: str) -> NoReturn:
    raise ValueError(f"{address} must be among the references of the schema in the registry")


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"line {error.lineno}, column {error.colno}: no JSON: {error.msg}"
        ) from None
