"""The systems between which whole flows run in tests: each at a place of its own per test.

A system fills in where it is (`at`), makes changes to what a source reads, and shows what stands
in a target. It knows nothing of the other end. `tests/connectors/<system>/system.py` has each.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from dataflow_assets.formats.avro_encoder import AvroEncoder

Row = dict[str, Any]
Config = dict[str, Any]


class Fixtures(Protocol):
    """What a system asks for by name: pytest's request, or what stands for it without pytest."""

    def getfixturevalue(self, argname: str) -> Any: ...

    def addfinalizer(self, finalizer: Callable[[], object]) -> None: ...


@dataclass(frozen=True)
class Change:
    """One thing that happens to the row of a key, `id`."""

    op: Literal["insert", "update", "delete"]
    row: Row


def state(changes: Iterable[Change]) -> list[Row]:
    """What stands after all of them."""
    rows: dict[int, Row] = {}
    for change in changes:
        if change.op == "delete":
            rows.pop(change.row["id"], None)
        else:
            rows[change.row["id"]] = change.row
    return list(rows.values())


class System(ABC):
    """One connector type at one place."""

    type: ClassVar[str]
    columns: ClassVar[tuple[str, ...]] = ("id", "name", "price", "ok")
    """What its rows can hold."""
    tells_changes: ClassVar[bool] = False
    """As a source: each change is a record; else only what stands is read."""
    sends_nulls: ClassVar[bool] = True
    """As a source that tells changes: a delete is a null message; False: it has no deletes."""
    upsert: ClassVar[Config | None] = None
    """As a sink: what makes it match rows by `id` and delete them; None: it appends."""

    def __init__(self, request: Fixtures) -> None:
        self.request = request

    @abstractmethod
    def at(self, role: str, config: Config) -> Config:
        """The `config` of one end here: hosts, credentials and fresh names over what is given."""

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        """Makes the changes where the source of this config reads."""
        raise NotImplementedError(self.type)

    def rows(self, config: Config) -> list[Row]:
        """What stands in the target of this config: the columns that a record can have."""
        raise NotImplementedError(self.type)

    def declared(self, config: Config) -> dict[str, str]:
        """The type of each column of the target, as the system spells it."""
        raise NotImplementedError(self.type)

    @staticmethod
    def spelled(kind: str) -> str:
        """A type of docs/types.md as the system spells it."""
        return kind


def encoded_row(config: Config, row: Row) -> bytes:
    """A row in the format of the topic; of Avro the fields that the schema has."""
    body = json.dumps(row).encode()
    if config.get("format") != "avro":
        return body
    return AvroEncoder(config["avroSchema"], ignore_unknown=True)(body)


def quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def without_columns(row: Mapping[str, Any], names: Iterable[str]) -> Row:
    return {name: value for name, value in row.items() if name not in set(names)}
