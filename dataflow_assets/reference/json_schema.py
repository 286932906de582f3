"""The JSON Schema of manifests, for editors: completion, texts and mistakes while one types.

Generated from the same models as the pages; each language describes its own documents.
`dataflow check` knows more: rules between fields, conditions, names that must exist.
"""

from __future__ import annotations

import json
from typing import Final

from dataflow_assets.languages.common.json_schema import Schema, at
from dataflow_assets.languages.language import languages

NAME: Final = "reference/dataflow.schema.json"
"""The file, below docs/."""
EDITOR_LINE: Final = "# yaml-language-server: $schema="
"""Begins the first line of a manifest, from which editors know where the schema is."""
_DRAFT = "http://json-schema.org/draft-07/schema#"  # the one that every editor knows
_KINDS = {"enum": ["ConfigMap", "Secret"]}
_VALUES: Schema = {
    "type": "object",
    "description": "A Secret or a ConfigMap of Kubernetes, read by the manifests beside it.",
    "required": ["apiVersion", "kind", "metadata"],
    "properties": {"apiVersion": {"const": "v1"}, "kind": _KINDS},
}


def render() -> str:
    """The text of the file.

    Called by `dataflow schema`, and where the generated pages are written.

    Returns:
        JSON, in an order that does not change between two calls.
    """
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def schema() -> Schema:
    """One document of a file: a Secret, a ConfigMap, or a document of a language.

    Returns:
        The schema, draft 7. What is refused as not supported yet is not valid by it.
    """
    described = [found for one in languages().values() if (found := one.document_schema())]
    definitions: Schema = {}
    content: Schema = {}
    for one in sorted(described, key=lambda one: one.condition is not None):
        definitions |= one.definitions
        document = {"$ref": at(one.name)}
        content = (
            {"if": one.condition, "then": document, "else": content} if one.condition else document
        )
    return {
        "$schema": _DRAFT,
        "title": "Manifests of dataflow-assets",
        "if": {"properties": {"kind": _KINDS}, "required": ["kind"]},
        "then": _VALUES,
        "else": content,
        "$defs": dict(sorted(definitions.items())),
    }
