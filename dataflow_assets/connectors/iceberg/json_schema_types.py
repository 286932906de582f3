"""Objects of a JSON Schema as Iceberg columns: types that take every value of the properties.

| JSON Schema | Iceberg |
|---|---|
| boolean, integer, number | boolean, long, double |
| string; with `format` date or date-time | string; date, timestamptz |
| object with `properties` | struct |
| object with `additionalProperties` of one schema alone | map |
| array with `items` of one schema | list |
| `null` beside another type, in `type`, `anyOf` or `oneOf` | that type, optional |
| `enum` and `const` without a type | the type of their values |
| several types, no type, an object that holds its own kind | string, JSON text |
| other objects and arrays | string, JSON text |

What only narrows values (`minimum`, `pattern`, `not`, ...) says nothing about columns. What adds
properties beside those that are listed is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyiceberg import types as ice

from dataflow_assets.contracts import Kind
from dataflow_assets.formats.json_schema_document import JsonSchemaNode
from dataflow_assets.sdk.types.comments import COMMENTS

NO_ID = 0
"""Of all fields: who makes a table of them gives them ids."""
_SIMPLE: dict[str, ice.IcebergType] = {
    "boolean": ice.BooleanType(),
    "integer": ice.LongType(),
    "number": ice.DoubleType(),
    "string": ice.StringType(),
}
_FORMATS: dict[str, ice.IcebergType] = {
    "date": ice.DateType(),
    "date-time": ice.TimestamptzType(),
}
_COMPOUND = ("object", "array")
_ANY = frozenset({*_SIMPLE, *_COMPOUND, "null"})
_OF_VALUES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
_SHAPING = ("allOf", "patternProperties", "$dynamicRef", "$recursiveRef")
"""Keywords that add properties in ways for which there are no columns."""
Typed = tuple[ice.IcebergType, str | None]
"""A type, and the comment of a string column that holds JSON."""
Inside = tuple[Any, ...]
"""The objects and arrays that a property is in."""
_JSON: Typed = (ice.StringType(), COMMENTS[Kind.JSON])


def columns(schema: JsonSchemaNode) -> list[ice.NestedField]:
    """The columns of an object's properties, without ids.

    Called on the driver, once for each version of a schema that a table has not seen.

    Raises:
        ValueError where the schema is not that of an object with properties, or has what no column
        can take; by the name of the property.
    """
    kinds, root = _kinds(schema, "the schema")
    if kinds - {"null"} != {"object"} or not root.schema.get("properties"):
        raise ValueError("it is not the schema of an object with properties")
    return _members(root, "", ())


def _members(node: JsonSchemaNode, path: str, inside: Inside) -> list[ice.NestedField]:
    required = node.schema.get("required", ())
    fields = []
    for name, one in node.schema["properties"].items():
        if not name or "." in name:
            raise ValueError(f"property {path}{name}: the name of a column has no point in it")
        field = _field(node.inner(one), name, path, (*inside, node.schema))
        needed = field.required and name in required
        fields.append(field.model_copy(update={"required": needed}))
    return fields


def _field(node: JsonSchemaNode, name: str, path: str, inside: Inside) -> ice.NestedField:
    place = f"{path}{name}"
    kinds, resolved = _kinds(node, f"property {place}")
    type_, doc = _column_type(kinds - {"null"}, resolved, place, inside)
    return ice.NestedField(NO_ID, name, type_, doc=doc, required="null" not in kinds)


def _column_type(kinds: frozenset[str], node: JsonSchemaNode, path: str, inside: Inside) -> Typed:
    if kinds == {"integer", "number"}:
        return ice.DoubleType(), None
    if len(kinds) != 1:
        return _JSON
    (kind,) = kinds
    if kind == "string":
        return _FORMATS.get(node.schema.get("format"), ice.StringType()), None
    if kind not in _COMPOUND:
        return _SIMPLE[kind], None
    if node.schema in inside:
        return _JSON
    make = _object if kind == "object" else _array
    return make(node, path, inside) or _JSON


def _object(node: JsonSchemaNode, path: str, inside: Inside) -> Typed | None:
    if node.schema.get("properties"):
        return ice.StructType(*_members(node, f"{path}.", inside)), None
    value = _element(node, "additionalProperties", "value", path, inside)
    if value is None:
        return None
    key_and_value = (ice.StringType(), NO_ID, value.field_type)
    return ice.MapType(NO_ID, *key_and_value, value_required=value.required), None


def _array(node: JsonSchemaNode, path: str, inside: Inside) -> Typed | None:
    element = _element(node, "items", "element", path, inside)
    if element is None or "prefixItems" in node.schema:
        return None
    return ice.ListType(NO_ID, element.field_type, element_required=element.required), None


def _element(
    node: JsonSchemaNode, key: str, name: str, path: str, inside: Inside
) -> ice.NestedField | None:
    one = node.schema.get(key)
    if not isinstance(one, dict):
        return None
    field = _field(node.inner(one), name, f"{path}.", (*inside, node.schema))
    return None if field.doc else field


def _kinds(node: JsonSchemaNode, where: str) -> tuple[frozenset[str], JsonSchemaNode]:
    """The JSON types of a schema's values, and the schema that says more about them."""
    node = _resolve(node, where)
    keywords = node.schema if isinstance(node.schema, dict) else {}
    key = "anyOf" if "anyOf" in keywords else "oneOf"
    if key not in keywords or {"type", "properties"} & keywords.keys():
        kinds = _of_one(keywords)
        _check_listed(node, kinds, keywords, where)
        return kinds, node
    # One that is not null says more about the values; of several nothing but their types is known.
    choices = [_kinds(_choice(node, one, key, where), where) for one in keywords[key]]
    filled = [inner for one, inner in choices if one != {"null"}]
    kinds = frozenset().union(*(one for one, _ in choices))
    if len(filled) != 1:
        return kinds, node
    beside = replace(node, schema={name: one for name, one in keywords.items() if name != key})
    _check_listed(beside, kinds, filled[0].schema, where)
    return kinds, filled[0]


def _check_listed(node: JsonSchemaNode, kinds: frozenset[str], listing: Any, where: str) -> None:
    """Raises ValueError where a schema has properties beside those of the one that lists them."""
    if kinds - {"null"} != {"object"} or not isinstance(listing, dict):
        return
    if not (listed := listing.get("properties")):
        return
    for keyword, part in _parts(node.schema):
        if more := _names(_choice(node, part, keyword, where), where) - listed.keys():
            raise ValueError(
                f"{where}: {keyword} adds {min(more)}, which gets no column: list all properties"
            )


def _names(node: JsonSchemaNode, where: str) -> set[str]:
    """The names, or patterns of names, of all properties that a schema tells of."""
    node = _follow(node, where)
    if not isinstance(node.schema, dict):
        return set()
    properties = {*node.schema.get("properties", ()), *node.schema.get("patternProperties", ())}
    parts = [_choice(node, part, key, where) for key, part in _parts(node.schema)]
    return properties.union(*(_names(part, where) for part in parts))


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas that hold for the same object, each with its keyword."""
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from ((keyword, part) for part in schema.get(keyword, ()))
    for keyword in ("if", "then", "else"):
        if keyword in schema:
            yield keyword, schema[keyword]
    for keyword in ("dependentSchemas", "dependencies"):
        yield from ((keyword, part) for part in schema.get(keyword, {}).values())


def _choice(node: JsonSchemaNode, schema: Any, keyword: str, where: str) -> JsonSchemaNode:
    try:
        return node.choice(schema, keyword)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _follow(node: JsonSchemaNode, where: str) -> JsonSchemaNode:
    try:
        return node.resolve()
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _resolve(node: JsonSchemaNode, where: str) -> JsonSchemaNode:
    resolved = _follow(node, where)
    if resolved.schema is False:
        raise ValueError(f"{where}: the schema false allows no value")
    if isinstance(resolved.schema, dict) and (
        wrong := [k for k in _SHAPING if k in resolved.schema]
    ):
        raise ValueError(f"{where}: {wrong[0]} has no columns: list all properties")
    return resolved


def _of_one(found: Mapping[str, Any]) -> frozenset[str]:
    declared = found.get("type")
    if declared is not None:
        return frozenset([declared] if isinstance(declared, str) else declared)
    if "properties" in found:
        return frozenset({"object"})
    values = [found["const"]] if "const" in found else found.get("enum")
    if values:
        return frozenset(_OF_VALUES.get(type(one), "object") for one in values)
    return _ANY
