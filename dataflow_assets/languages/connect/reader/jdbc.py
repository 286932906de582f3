"""The JDBC sinks: their keys -> a table of a database, and what they do to records themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import SecretStr, ValidationError

from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Branch
from dataflow_assets.languages.common.connect_values import ConnectValues
from dataflow_assets.languages.common.notes import Where
from dataflow_assets.languages.common.references import mentions
from dataflow_assets.languages.connect.ends import JdbcTable, MysqlJdbcTable
from dataflow_assets.languages.connect.reader.converters import STRING, Converter, key_step
from dataflow_assets.languages.connect.reader.keys import DEBEZIUM
from dataflow_assets.languages.connect.reader.steps import NO_DELETES, field, insert, step
from dataflow_assets.languages.connect.reader.transforms import Transformed
from dataflow_assets.records.chain import Transformation
from dataflow_assets.sdk.database import split

_COORDINATES = ("__connect_topic", "__connect_partition", "__connect_offset")
_CONFLUENT = {
    "user": "connection.user",
    "mode": "pk.mode",
    "fields": "pk.fields",
    "format": "table.name.format",
    "creates": "auto.create",
    "zone": "db.timezone",
}
_DEBEZIUM = {
    "user": "connection.username",
    "mode": "primary.key.mode",
    "fields": "primary.key.fields",
    "format": "collection.name.format",
    "creates": "schema.evolution",
    "zone": "use.time.zone",
}
_OLD = {"collection.name.format": "table.name.format", "use.time.zone": "database.time_zone"}
_TOO_LONG = (
    "more than schema.table: write the name, or cut the topic's by the transform RegexRouter"
)
_URL = re.compile(
    r"jdbc:postgresql://(?P<hosts>[^/?\s]+)/(?P<database>[^?\s]+)(?:\?(?P<rest>\S*))?"
)
MYSQL = re.compile(r"\s*jdbc:(?:mysql|mariadb):")
"""Begins the address of a server of MySQL or MariaDB."""
_MYSQL_URL = re.compile(
    r"jdbc:(?:mysql|mariadb)://(?P<host>[^/:?,@\s]+)(?::(?P<port>\d+))?/(?P<database>[^?/\s]+)"
    r"(?:\?(?P<rest>\S*))?"
)
_FORM = "must be jdbc:postgresql://host:port/database, or the same with mysql or mariadb"
_OF_TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
_WITHOUT_EFFECT = frozenset(
    {
        "applicationname",
        "binarytransfer",
        "connecttimeout",
        "logintimeout",
        "preparethreshold",
        "rewritebatchedinserts",
        "sockettimeout",
        "stringtype",
        "targetservertype",
        "tcpkeepalive",
    }
)
_MYSQL_WITHOUT_EFFECT = frozenset(
    {
        "allowpublickeyretrieval",
        "autoreconnect",
        "characterencoding",
        "connecttimeout",
        "rewritebatchedstatements",
        "sockettimeout",
        "tcpkeepalive",
        "usebulkstmts",
        "useunicode",
    }
)


@dataclass(frozen=True)
class JdbcSink:
    """A file's rules for its rows; the table's name depends on the topic."""

    values: ConnectValues
    keys: Mapping[str, str]
    """What the connector calls the keys that both of them have."""
    key: Converter | None
    debezium: bool
    mode: str
    fields: tuple[str, ...]
    upserts: bool
    deletes: bool

    @classmethod
    def read(cls, values: ConnectValues, key: Converter | None) -> JdbcSink:
        """Called once for a file; what is wrong is in the notes afterwards."""
        debezium = values.text("connector.class") == DEBEZIUM
        given, keys = values.document.value, dict(_DEBEZIUM if debezium else _CONFLUENT)
        for name, one in keys.items():
            keys[name] = _OLD[one] if one not in given and _OLD.get(one) in given else one
        modes = ("none", "kafka", "record_key", "record_value")
        mode = values.choice(keys["mode"], modes) or "none"
        sink = cls(
            values,
            keys,
            key,
            debezium,
            mode,
            () if debezium and mode == "kafka" else tuple(values.commas(keys["fields"])),
            values.choice("insert.mode", ("insert", "upsert")) == "upsert",
            values.flag("delete.enabled"),
        )
        for where, message in sink._contradictions():
            values.notes.wrong(where, message)
        return sink

    def where(self, name: str) -> Where:
        """The place of a key, by its common name or its own."""
        return self.values.document, self.keys.get(name, name)

    def _contradictions(self) -> Iterator[tuple[Where, str]]:
        """Finds keys that contradict each other, and values that nothing here does."""
        values, mode, fields = self.values, self.mode, self.keys["fields"]
        if self.deletes and not (self.upserts and mode == "record_key"):
            yield (
                self.where("delete.enabled"),
                f"needs insert.mode=upsert and {self.keys['mode']}=record_key",
            )
        if self.upserts and mode == "none":
            yield self.where("insert.mode"), f"needs {self.keys['mode']}: by what rows are matched"
        table_exists = self.upserts and not self._creates  # the table's primary key counts then
        if not self.fields and (
            mode == "record_value" or (mode == "record_key" and not table_exists)
        ):
            yield self.where("mode"), f"needs {fields}: the fields of the key, separated by commas"
        if mode == "kafka" and len(self.fields) not in (0, 3):
            yield self.where("fields"), "must name three columns: of topic, partition and offset"
        if mode == "record_key" and self.key and self.key.kind == STRING and len(self.fields) != 1:
            yield self.where("mode"), f"needs one field in {fields}: keys are texts"
        if (values.text(self.keys["zone"]) or "UTC").upper() not in ("UTC", "ETC/UTC", "GMT"):
            yield self.where("zone"), "must be UTC: times are stored as they are sent"
        if values.flag("truncate.enabled"):
            yield self.where("truncate.enabled"), "no event empties a table here: remove the key"
        if (values.text("quote.sql.identifiers") or "always").lower() != "always":
            yield self.where("quote.sql.identifiers"), "must be always: names are as written"

    @property
    def _creates(self) -> bool:
        if self.debezium:
            return self.values.choice(self.keys["creates"], ("none", "basic")) == "basic"
        return self.values.flag(self.keys["creates"])

    @property
    def tombstones(self) -> str:
        if self.deletes:
            return "delete"
        return "skip" if self.debezium else "reject"

    def steps(self, before: Transformed) -> Sequence[Transformation]:
        """Makes the steps for what the connector itself does to a record after its transforms."""
        chain: list[Transformation] = []
        if self.debezium and not before.unwrapped:
            chain.append(step("debeziumUnwrap", "$.op"))
        if not self.deletes and (self.debezium or before.unwrapped):
            chain.append(step("filter", condition=NO_DELETES))
        if chosen := self.values.commas("fields.whitelist"):
            own = self.fields if self.mode == "record_value" else ()
            chain.append(step("replaceField", include=list(map(field, (*own, *chosen)))))
        if self.mode == "record_key" and self.fields and self.key is not None:
            chain.append(key_step(self.key, self.fields))
        if self.mode == "kafka":
            topic, *numbers = self.fields or _COORDINATES
            written = zip(numbers, ("${metadata.partition}", "${metadata.offset}"), strict=True)
            chain.append(insert({topic: before.topic, **dict(written)}))
            chain.append(step("cast", spec=dict.fromkeys(numbers, "int64")))
        return chain

    def branches(self, topic: str) -> tuple[Branch, ...]:
        """The one to the table of a topic; none where something is wrong, which is in the notes."""
        table = self._sink(topic)
        return (Branch(table, place=(self.keys["format"],)),) if table else ()

    def _sink(self, topic: str) -> JdbcTable | MysqlJdbcTable | None:
        values, notes, where = self.values, self.values.notes, self.where("connection.url")
        url = values.require("connection.url", "like jdbc:postgresql://host:5432/database")
        if not url or mentions(url):  # which has its finding
            return None
        try:
            address = JdbcUrl.parse(url, values.text(self.keys["user"]))
            own = address.made is JdbcTable  # MySQL's names of columns differ in no case
            lower = own and self.debezium and not values.flag("quote.identifiers")
            where = self.where("format")
            table = self._table(topic, address.schema)
            where = self.where("connection.url")
            sink = address.made(
                **address.options,
                table=table.lower() if lower else table,
                auto_create_table=self._creates,
                column_names="ignoreCase" if lower or not own else "exact",
                **self._key_options(),
                **values.secret("connection.password", "password"),
            )
            sink.address()
        except ValidationError as error:
            notes.refuse(error, {"table": self.where("format")}, where)
        except (DataflowError, ValueError) as error:
            notes.wrong(where, str(error))
        else:
            return sink
        return None

    def _key_options(self) -> dict[str, Any]:
        if not self.upserts:
            return {}
        columns = (self.fields or _COORDINATES) if self.mode == "kafka" else self.fields
        deletes = {"delete_mode": "hard"} if self.deletes else {}
        return {"upsert_mode": True, "conflict_key": columns, **deletes}

    def _table(self, topic: str, schema: str) -> str:
        """The table that a topic's records go to. Raises ValueError where its name is none."""
        key, text = self.keys["format"], self.values.text(self.keys["format"]) or "${topic}"
        mapped = self.values.commas("topic2table.map")
        chosen = dict(pair.split(":", 1) for pair in mapped if ":" in pair)
        own = topic.replace(".", "_") if self.debezium else topic
        name = chosen.get(topic) or text.replace("${topic}", own)
        if "${" in name:
            raise ValueError(f"{key} has a placeholder besides ${{topic}}: write the table's name")
        parts = list(split(name)) if '"' in name else name.split(".")
        if len(parts) > 2:
            raise ValueError(f"{key} comes to {name}, {_TOO_LONG}")
        parts = parts if len(parts) == 2 and parts[0] else [schema, parts[-1]]
        return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


@dataclass(frozen=True)
class JdbcUrl:
    """An address without its password."""

    made: type[JdbcTable | MysqlJdbcTable]
    options: Mapping[str, Any]
    """The address in the options of that sink."""
    schema: str
    """Of tables that are named without one."""

    @classmethod
    def parse(cls, text: str, user: str) -> JdbcUrl:
        """Raises ValueError with what is allowed; no value of the address is in it."""
        match = _URL.fullmatch(text) or _MYSQL_URL.fullmatch(text)
        if match is None:
            other = re.match(r"jdbc:(?!postgresql|mysql|mariadb)(\w+)", text)
            raise ValueError(f"{other[1]} is not supported: {_FORM}" if other else _FORM)
        rest = {key.lower(): value for key, value in parse_qsl(match["rest"] or "")}
        user = user or rest.pop("user", "")
        if not user:
            raise ValueError("needs a user: write the connector's own key for it")
        if "password" in rest:
            raise ValueError("has a password in it: write it into connection.password")
        if match.re is _MYSQL_URL:
            return cls._of_mysql(match, rest, user)
        schema = rest.pop("currentschema", "public").split(",")[0].strip('"')
        tls = {key: rest.pop(key) for key in _OF_TLS if key in rest}
        if rest.pop("ssl", "false").lower() == "true":
            tls.setdefault("sslmode", "verify-full")
        _check_parameters(rest.keys() - _WITHOUT_EFFECT)
        tail = f"?{urlencode(tls)}" if tls else ""
        login = quote(user, safe="")
        text = f"postgresql://{login}@{match['hosts']}/{match['database']}{tail}"
        return cls(JdbcTable, {"connection_string": SecretStr(text)}, schema)

    @classmethod
    def _of_mysql(cls, match: re.Match[str], rest: dict[str, str], user: str) -> JdbcUrl:
        """Encrypts where the server offers it, as the drivers do; what asks for more is refused."""
        if rest.get("sslmode", "").lower() in ("preferred", "disabled", "disable"):
            del rest["sslmode"]
        if rest.get("servertimezone", "").upper() in ("UTC", "ETC/UTC", "GMT"):
            del rest["servertimezone"]
        _check_parameters(rest.keys() - _MYSQL_WITHOUT_EFFECT)
        where = {"host": match["host"], "port": int(match["port"] or 3306), "user": user}
        database = match["database"]
        return cls(MysqlJdbcTable, {**where, "database": database}, database)


def _check_parameters(unknown: Iterable[str]) -> None:
    if names := sorted(unknown):
        raise ValueError(f"has parameters that are not supported: {', '.join(names)}")
