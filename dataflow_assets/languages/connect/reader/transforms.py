"""Single message transforms of Kafka Connect -> steps that do the same, or a finding.

A transform is translated only where its step does exactly the same to every record, or rejects the
record; the topic's name, which some of them change or write, is known before anything is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from dataflow_assets.languages.common.documents import Document
from dataflow_assets.languages.common.notes import Notes
from dataflow_assets.languages.connect.reader.steps import NO_DELETES, insert, step
from dataflow_assets.languages.connect.reader.steps import field as path
from dataflow_assets.records.chain import Transformation

APACHE = "org.apache.kafka.connect.transforms."
UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
_EVENT, _ROW, _GONE = "$.op", "$.op in [c, r, u] && $.after", "$.op == 'd' && $.before"
_MODES = ("rewrite", "rewrite-with-tombstone")
_DELETED = "__deleted"
_TOP = ("op", "ts_ms", "ts_us", "ts_ns")
_LITERAL = re.compile(r"json:|.*\$\{", re.DOTALL)
_NO_KEYS = "keys are read as they are: take record_value, and name the fields of the value"
_MANIFEST = "has no step that does exactly the same: write a DataFlow manifest, whose steps are in "
_ADVICE = {
    f"{APACHE}TimestampConverter$Value": "docs/reference/steps.md (timezone)",
    f"{APACHE}TimestampRouter": "docs/reference/steps.md (router)",
    "io.confluent.connect.transforms.Filter$Value": "docs/reference/steps.md (filter)",
    "io.debezium.transforms.Filter": "docs/reference/steps.md (filter)",
}
_TYPES = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "int64"),
    **dict.fromkeys(("float32", "float64"), "float64"),
    "boolean": "bool",
    "string": "string",
}


@dataclass(frozen=True)
class Transformed:
    """The result of the transforms so far for a topic's records."""

    topic: str
    steps: tuple[Transformation, ...] = ()
    tombstones: bool = True
    """Whether null messages are still there."""
    unwrapped: bool = False
    """Whether events of Debezium have become rows."""

    def then(self, *steps: Transformation) -> Transformed:
        return replace(self, steps=(*self.steps, *steps))


@dataclass(frozen=True)
class Smt:
    """One transform: its name, its class and its own settings."""

    name: str
    kind: str
    settings: Mapping[str, str]
    predicate: str = ""
    """The class of its predicate, `!` in front where it is negated."""
    used: set[str] = field(default_factory=set)

    def get(self, *keys: str) -> str:
        """The first of these settings that is given."""
        self.used.update(keys)
        return next((self.settings[key].strip() for key in keys if key in self.settings), "")

    def demand(self, *keys: str) -> str:
        """Returns the first that is given. Raises ValueError where none is."""
        if not (text := self.get(*keys)):
            raise ValueError(f"needs transforms.{self.name}.{keys[0]}")
        return text

    def items(self, *keys: str) -> list[str]:
        return [part.strip() for part in self.get(*keys).split(",") if part.strip()]


Translate = Callable[[Smt, Transformed], Transformed]


def apply_transforms(document: Document, first: Transformed, notes: Notes) -> Transformed:
    """Follows a topic's records through the transforms; `notes` gets what is wrong.

    Called once for each topic, when a file is read.
    """
    transformed = first
    for smt in _transforms(document, notes):
        where = (document, f"transforms.{smt.name}.type")
        if smt.predicate and smt.kind != f"{APACHE}Filter":
            notes.wrong(where, "has a predicate, which is supported for Filter only")
        try:
            transformed = TRANSLATIONS.get(smt.kind, _refuse)(smt, transformed)
            for key in sorted(smt.settings.keys() - smt.used):
                message = "is not supported for this transform: remove it"
                notes.wrong((document, f"transforms.{smt.name}.{key}"), message, key=True)
        except ValidationError as error:
            notes.refuse(error, {}, where)
        except ValueError as error:
            notes.wrong(where, str(error))
    return transformed


def _transforms(document: Document, notes: Notes) -> Iterator[Smt]:
    values = document.value
    for name in filter(None, map(str.strip, values.get("transforms", "").split(","))):
        own = {
            key.removeprefix(f"transforms.{name}."): text
            for key, text in values.items()
            if key.startswith(f"transforms.{name}.")
        }
        kind, predicate = own.pop("type", "").strip(), own.pop("predicate", "").strip()
        negated = own.pop("negate", "false").strip().lower() == "true"
        if not kind:
            notes.wrong((document, "transforms"), f"needs transforms.{name}.type")
            continue
        predicate_class = values.get(f"predicates.{predicate}.type", predicate).strip()
        yield Smt(name, kind, own, ("!" if negated else "") + predicate_class if predicate else "")


def _refuse(smt: Smt, _: Transformed) -> Transformed:
    if smt.kind.endswith("$Key") or smt.kind == f"{APACHE}ValueToKey":
        raise ValueError(f"is not supported: {_NO_KEYS}")
    raise ValueError(_MANIFEST + _ADVICE.get(smt.kind, "docs/reference/steps.md"))


def _replace(smt: Smt, before: Transformed) -> Transformed:
    exclude, include = smt.items("exclude", "blacklist"), smt.items("include", "whitelist")
    renames = dict(pair.split(":", 1) for pair in smt.items("renames") if ":" in pair)
    if set(renames) & set(renames.values()):
        raise ValueError("renames a field to a name that it takes from another one: use two")
    kept = [path(name) for name in include if name not in exclude]
    config: dict[str, Any] = {}
    if include:
        if not kept:
            raise ValueError("keeps no field at all")
        config["include"] = kept
    elif exclude:
        config["exclude"] = [path(name) for name in exclude]
    if renames:
        config["renames"] = {path(old): path(new) for old, new in renames.items()}
    return before.then(step("replaceField", **config))


def _mask(smt: Smt, before: Transformed) -> Transformed:
    text = _constant(smt.demand("replacement"))
    names = [path(name) for name in smt.items("fields")]
    return before.then(*(insert({name: text}, f"$.{name} != ''") for name in names))


def _insert(smt: Smt, before: Transformed) -> Transformed:
    places = {
        "topic.field": before.topic,
        "partition.field": "${metadata.partition}",
        "offset.field": "${metadata.offset}",
        "timestamp.field": "${metadata.timestamp}",
    }
    names = {key: smt.get(key).rstrip("!?") for key in places}
    fields = {path(name): places[key] for key, name in names.items() if name}
    if name := smt.get("static.field").rstrip("!?"):
        fields[path(name)] = _constant(smt.demand("static.value"))
    numbers = [path(names[key]) for key in ("partition.field", "offset.field") if names[key]]
    cast = [step("cast", spec=dict.fromkeys(numbers, "int64"))] if numbers else []
    return before.then(insert(fields), *cast)


def _constant(text: str) -> str:
    if _LITERAL.match(text):
        raise ValueError(
            "has a text with `${` in it, or with `json:` in front, which mean more here"
        )
    return text


def _extract(smt: Smt, before: Transformed) -> Transformed:
    name = path(smt.demand("field"))
    there = step("validate", schema={"type": "object", "required": [name]})
    return before.then(there, step("extractField", field=name))


def _hoist(smt: Smt, before: Transformed) -> Transformed:
    return before.then(step("hoistField", field=path(smt.demand("field"))))


def _flatten(smt: Smt, before: Transformed) -> Transformed:
    return before.then(step("structFlatten", delimiter=smt.get("delimiter") or "."))


def _cast(smt: Smt, before: Transformed) -> Transformed:
    spec = dict(pair.rpartition(":")[::2] for pair in smt.items("spec"))
    if not all(name and kind.strip() in _TYPES for name, kind in spec.items()):
        raise ValueError(f"its spec must be field:type; types are {', '.join(_TYPES)}")
    smt.get("replace.null.with.default")
    types = {path(name): _TYPES[kind.strip()] for name, kind in spec.items()}
    return before.then(step("cast", spec=types, nullable=True))


def _filter(smt: Smt, before: Transformed) -> Transformed:
    if smt.predicate != f"{APACHE}predicates.RecordIsTombstone":
        raise ValueError(
            "is supported with the predicate RecordIsTombstone only: write a DataFlow "
            "manifest with the step filter"
        )
    return replace(before, tombstones=False)


def _route(smt: Smt, before: Transformed) -> Transformed:
    try:
        pattern = re.compile(smt.demand("regex"))
        text = re.sub(r"\$(\d)", r"\\\1", smt.demand("replacement"))
        if pattern.fullmatch(before.topic) is None:
            return before
        return replace(before, topic=pattern.sub(text, before.topic, count=1))
    except re.error as error:
        raise ValueError("has a regular expression of Java's own: write the table") from error


def _nothing(smt: Smt, before: Transformed) -> Transformed:
    smt.used.update(smt.settings)  # headers and names of schemas have no column
    return before


def _unwrap(smt: Smt, before: Transformed) -> Transformed:
    """Events become rows; what deletes is dropped, deletes, or is a row that says so."""
    mode = smt.get("delete.tombstone.handling.mode")
    old = smt.get("delete.handling.mode"), smt.get("drop.tombstones")
    if any(old) and not mode:
        kept = {"none": "delete-to-tombstone", "rewrite": "rewrite"}.get(old[0], "drop")
        tombstones = old[1].lower() == "false"
    else:
        kept = mode or "tombstone"
        tombstones = kept in ("tombstone", "rewrite-with-tombstone")
    if kept not in (*_MODES, "drop", "tombstone", "delete-to-tombstone"):
        raise ValueError(f"has an unknown way to handle deletes: {kept}")
    for name in ("add.headers", "add.headers.prefix", "drop.fields.keep.schema.compatible"):
        smt.get(name)  # headers have no column
    steps = [*_added_fields(smt, kept), step("debeziumUnwrap", _EVENT)]
    if kept in ("drop", "tombstone"):
        steps.append(step("filter", condition=NO_DELETES))
    unwrapped = before.then(*steps)
    return replace(unwrapped, unwrapped=True, tombstones=before.tombstones and tombstones)


def _added_fields(smt: Smt, kept: str) -> Iterator[Transformation]:
    """Writes fields of an event into its row; where a delete stays, it has a row, too."""
    prefix = smt.get("add.fields.prefix") or "__"
    if kept in _MODES:
        yield insert({"after": "${$.before}"}, _GONE)
    added = {}
    for one in smt.items("add.fields"):
        source, _, name = one.partition(":")
        where = source if source in _TOP or "." in source else f"source.{source}"
        names = ".".join(map(path, where.split(".")))
        added[f"after.{path(prefix + (name or source.replace('.', '_')))}"] = f"${{$.{names}}}"
    if added:
        yield insert(added, f"{_EVENT} && $.after")
    if kept in _MODES:
        yield insert({f"after.{_DELETED}": "false"}, _ROW)
        yield insert({f"after.{_DELETED}": "true", "op": "u"}, _GONE)


TRANSLATIONS: Mapping[str, Translate] = {
    UNWRAP: _unwrap,
    f"{APACHE}ReplaceField$Value": _replace,
    f"{APACHE}MaskField$Value": _mask,
    f"{APACHE}InsertField$Value": _insert,
    f"{APACHE}ExtractField$Value": _extract,
    f"{APACHE}HoistField$Value": _hoist,
    f"{APACHE}Flatten$Value": _flatten,
    f"{APACHE}Cast$Value": _cast,
    f"{APACHE}Filter": _filter,
    f"{APACHE}RegexRouter": _route,
    f"{APACHE}InsertHeader": _nothing,
    f"{APACHE}DropHeaders": _nothing,
    f"{APACHE}SetSchemaMetadata$Value": _nothing,
    f"{APACHE}SetSchemaMetadata$Key": _nothing,
}
