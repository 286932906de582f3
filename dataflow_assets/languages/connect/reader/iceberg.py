"""Iceberg's sink: its keys -> tables of a REST catalog, and the way to each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Branch
from dataflow_assets.languages.common.connect_values import ConnectValues
from dataflow_assets.languages.connect.ends import LakeTable
from dataflow_assets.languages.connect.reader.converters import login
from dataflow_assets.languages.connect.reader.keys import ICEBERG
from dataflow_assets.languages.connect.reader.steps import NO_DELETES, step
from dataflow_assets.languages.connect.reader.transforms import Transformed
from dataflow_assets.records.chain import Transformation

_REST = "org.apache.iceberg.rest.RESTCatalog"
_CATALOG = "iceberg.catalog."
_WORDS = re.compile(r"\(?([\w-]+(?:\|[\w-]+)*)\)?")
_PLAIN = {
    "uri": "catalog_uri",
    "warehouse": "warehouse",
    "prefix": "prefix",
    "scope": "oauth2_scope",
    "oauth2-server-uri": "oauth2_server_uri",
    "s3.endpoint": "s3_endpoint",
    "s3.region": "s3_region",
    "client.region": "s3_region",
}
_SECRET = {
    "token": "bearer_token",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_access_key",
}
_SEVERAL = "are several, and each would get every record: write a file, with a name, for each"
_NO_REST = (
    "must be rest: other catalogs are reached by their REST interface, such as Nessie's at "
    "http://nessie:19120/iceberg"
)
_NO_WORDS = (
    "must be words, divided by `|`, that the field is equal to: a DataFlow manifest with the step "
    "router takes other expressions"
)
_NO_CLIENT = "must be client:secret, each of which may be ${env:VARIABLE}"
_APPENDS = (
    "has no effect in Apache's sink, which appends: remove it to go on so; to replace rows by key, "
    "write a DataFlow manifest with upsertMode"
)
_OF_TABLES = ("route-regex", "id-columns", "partition-by")
_DEFAULTS = {
    "id-columns": "iceberg.tables.default-id-columns",
    "partition-by": "iceberg.tables.default-partition-by",
}


@dataclass(frozen=True)
class IcebergTables:
    """Tables of a file; every topic's records go the same ways."""

    values: ConnectValues
    tables: tuple[str, ...]
    route: str
    """The field that chooses the table; empty: none does."""
    words: Mapping[str, Sequence[str]]
    """The values of that field that lead to each table."""

    @classmethod
    def read(cls, values: ConnectValues) -> IcebergTables:
        """Called once for a file; what is wrong is in the notes afterwards."""
        notes, document = values.notes, values.document
        tables = values.list_of("iceberg.tables", "namespace.table, separated by commas")
        route = values.text("iceberg.tables.route-field")
        words = {table: _words(values, table) if route else () for table in tables}
        sink = cls(values, tables, route, words)
        for key, message in sink._contradictions():
            notes.wrong((document, key), message)
        return sink

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        values, tables = self.values, self.tables
        if self._of_tables("dynamic-enabled"):
            yield "iceberg.tables.dynamic-enabled", "must be false: list tables in iceberg.tables"
        if not all("." in table for table in tables):
            yield "iceberg.tables", "must be namespace.table each"
        if len(tables) > 1 and not self.route:
            yield "iceberg.tables", _SEVERAL
        kind = values.text("iceberg.catalog.catalog-impl") or values.text("iceberg.catalog.type")
        if kind not in ("rest", _REST):
            yield "iceberg.catalog.type", _NO_REST
        keys = {f"iceberg.table.{table}.{key}" for table in tables for key in _OF_TABLES}
        for key in values.document.value:
            if key.startswith("iceberg.table.") and key not in keys:
                yield key, f"is no table of iceberg.tables, or none of {', '.join(_OF_TABLES)}"
        if len(set(self._all_words)) < len(self._all_words):
            yield f"iceberg.table.{tables[-1]}.route-regex", "has a word of another table, too"
        if self._of_tables("upsert-mode-enabled") and (wrong := self._wrong_upsert()):
            yield "iceberg.tables.upsert-mode-enabled", wrong

    def _wrong_upsert(self) -> str:
        if self.values.text("connector.class") == ICEBERG:
            return _APPENDS
        keyed = all(self._of_table(table, "id-columns") for table in self.tables)
        return "" if keyed else f"needs {_DEFAULTS['id-columns']}"

    @property
    def _all_words(self) -> list[str]:
        return [word for words in self.words.values() for word in words]

    def _of_tables(self, name: str) -> bool:
        return self.values.flag(f"iceberg.tables.{name}")

    @property
    def tombstones(self) -> str:
        """The meaning of a null message: the connector leaves it out."""
        return "skip"

    def steps(self, before: Transformed) -> list[Transformation]:
        """Takes out what the connector leaves out, and sends records to their tables."""
        chain = [step("filter", condition=NO_DELETES)] if before.unwrapped else []
        if self.route:
            chain.append(step("filter", condition=self._condition(self._all_words)))
        if others := self.tables[1:]:
            routes = [
                {
                    "condition": self._condition(self.words[table]),
                    "sink": {"type": LakeTable.type, "config": {"table": table}},
                }
                for table in others
            ]
            chain.append(step("router", routes=routes))
        return chain

    def _condition(self, words: Sequence[str]) -> str:
        return f"$.{self.route} in [{', '.join(map(repr, words))}]"

    def branches(self, topic: str) -> tuple[Branch, ...]:  # noqa: ARG002 - as of JDBC
        """A branch for each table; none where something is wrong, which the notes have by then."""
        shared = self._catalog()
        routed = []
        for number, table in enumerate(self.tables):
            sink = self._sink(table, shared)
            if sink is None:
                return ()
            route = self._condition(self.words[table]) if number else None
            routed.append(Branch(sink, routes=(route,), place=("iceberg.tables",)))
        return tuple(routed)

    def _sink(self, table: str, shared: Mapping[str, Any]) -> LakeTable | None:
        values, on = self.values, self._of_tables
        namespace, _, name = table.rpartition(".")
        if not namespace:  # which has its finding
            return None
        fields: dict[str, Any] = {"auto_create_table": on("auto-create-enabled")}
        fields["unknown_fields"] = "reject" if on("evolve-schema-enabled") else "ignore"
        fields["column_names"] = "ignoreCase" if on("schema-case-insensitive") else "exact"
        layout = self._of_table(table, "partition-by")
        if layout and on("auto-create-enabled"):
            fields["partition_by"] = _terms(layout)
        if (pause := values.number("iceberg.control.commit.interval-ms", 0, None)) is not None:
            fields["batch_flush_interval_seconds"] = int(pause / 1000)
        if on("upsert-mode-enabled"):
            parts = map(str.strip, self._of_table(table, "id-columns").split(","))
            fields |= {"upsert_mode": True, "conflict_key": list(filter(None, parts))}
        where = (values.document, "iceberg.tables")
        try:
            sink = LakeTable(**shared, **fields, namespace=namespace, table=name)
            sink.address()
        except ValidationError as error:
            places = {name: (values.document, f"{_CATALOG}{key}") for key, name in _PLAIN.items()}
            values.notes.refuse(error, places, where)
        except (DataflowError, ValueError) as error:
            values.notes.wrong(where, str(error))
        else:
            return sink
        return None

    def _of_table(self, table: str, key: str) -> str:
        own = self.values.text(f"iceberg.table.{table}.{key}")
        return own or self.values.text(_DEFAULTS[key])

    def _catalog(self) -> dict[str, Any]:
        """Reads the fields that say where the catalog and the files are."""
        values = self.values
        values.require(f"{_CATALOG}uri", "the catalog's address, like https://catalog:8181")
        plain = {name: values.text(f"{_CATALOG}{key}") for key, name in _PLAIN.items()}
        fields: dict[str, Any] = {name: text for name, text in plain.items() if text}
        for key, name in _SECRET.items():
            fields |= values.secret(f"{_CATALOG}{key}", name)
        if reference := fields.pop("bearer_token_secret_ref", None):
            fields["token_secret_ref"] = reference
        fields["s3_path_style_access"] = values.flag(f"{_CATALOG}s3.path-style-access")
        where = (values.document, f"{_CATALOG}credential")
        if text := values.text(where[1]):
            names = ("oauth2_client_id", "oauth2_client_secret")
            fields |= login(text, names, where, values.notes, _NO_CLIENT)
        return fields


def _words(values: ConnectValues, table: str) -> Sequence[str]:
    key = f"iceberg.table.{table}.route-regex"
    match = _WORDS.fullmatch(values.text(key))
    if match is None:
        values.notes.wrong((values.document, key), _NO_WORDS)
        return ()
    return match[1].split("|")


def _terms(text: str) -> list[str]:
    """Partitions as manifests write them: `day(at)` for `days(at)`."""
    return [_term(part.strip()) for part in re.split(r",(?![^()]*\))", text)]


def _term(text: str) -> str:
    if match := re.fullmatch(r"(year|month|day|hour)s?\((\w+)\)", text):
        return f"{match[1]}({match[2]})"
    match = re.fullmatch(r"(bucket|truncate)\((\w+),\s*(\d+)\)", text)
    return f"{match[1]}({match[3]}, {match[2]})" if match else text
