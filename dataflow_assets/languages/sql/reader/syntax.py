"""The syntax of a file, before anything is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dataflow_assets.languages.common.tokens import Place
from dataflow_assets.languages.sql.engine.types import FlinkType


@dataclass(frozen=True)
class Literal:
    """A value."""

    place: Place
    type: FlinkType
    value: Any


@dataclass(frozen=True)
class FlinkName:
    """A column: `a`, `t.a`, `a.b`."""

    place: Place
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Star:
    """`*`, or `t.*`."""

    place: Place
    table: str | None = None


@dataclass(frozen=True)
class Invoked:
    """A function or operator, by its name in the closed list or as it is written."""

    place: Place
    name: str
    arguments: tuple[Node, ...]
    distinct: bool = False
    condition: Node | None = None
    """Of FILTER (WHERE ...)."""


@dataclass(frozen=True)
class Casting:
    """CAST or TRY_CAST."""

    place: Place
    given: Node
    type: FlinkType
    tries: bool = False


@dataclass(frozen=True)
class Ordered:
    """One expression of ORDER BY."""

    node: Node
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True)
class FlinkNumbered:
    """ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...)."""

    place: Place
    partition: tuple[Node, ...]
    order: tuple[Ordered, ...]


Node = Literal | FlinkName | Star | Invoked | Casting | FlinkNumbered


@dataclass(frozen=True)
class Option:
    """One `'key' = 'value'`."""

    place: Place
    value_place: Place
    key: str
    value: str = field(repr=False)


@dataclass(frozen=True)
class FlinkColumnDefinition:
    """A column of a table."""

    place: Place
    name: str
    type: FlinkType | None = None
    """None: computed."""
    nullable: bool = True
    metadata: str | None = None
    """The key of the metadata that it is."""
    virtual: bool = False
    computed: Node | None = None

    @property
    def physical(self) -> bool:
        """Returns whether it is in the bytes of records."""
        return self.metadata is None and self.computed is None


@dataclass(frozen=True)
class Watermark:
    """WATERMARK FOR column AS expression."""

    place: Place
    column: str
    delay: Node


@dataclass(frozen=True)
class Like:
    """LIKE other (options)."""

    place: Place
    table: str
    options: Mapping[str, str]
    """What is included, excluded or overwritten, by its word."""


@dataclass(frozen=True)
class FlinkCreateTable:
    """CREATE TABLE."""

    place: Place
    name: str
    columns: tuple[FlinkColumnDefinition, ...] = ()
    key: tuple[str, ...] = ()
    key_place: Place | None = None
    watermark: Watermark | None = None
    options: tuple[Option, ...] = ()
    like: Like | None = None
    comment: str = ""
    if_not_exists: bool = False


@dataclass(frozen=True)
class Selected:
    """One item of a SELECT."""

    node: Node
    alias: str | None = None


@dataclass(frozen=True)
class FlinkReference:
    """A table of FROM."""

    place: Place
    table: str
    alias: str | None = None
    options: tuple[Option, ...] = ()
    """Of a hint."""


@dataclass(frozen=True)
class Windowed:
    """A table of FROM with the windows of its rows: TUMBLE, HOP or CUMULATE."""

    place: Place
    kind: str
    table: FlinkReference
    column: FlinkName
    """Of DESCRIPTOR."""
    intervals: Mapping[str, Literal]
    """By their names: SIZE, SLIDE, STEP, OFFSET."""
    alias: str | None = None


@dataclass(frozen=True)
class FlinkUnnestedJoin:
    """A join of a row with the items of an array, or of a map, of its own."""

    place: Place
    given: Node
    alias: str | None = None
    columns: tuple[str, ...] = ()
    """Their names; empty: those that the items have."""
    outer: bool = False
    """LEFT JOIN: a row without items stays."""
    numbered: bool = False
    """WITH ORDINALITY."""
    condition: Node | None = None
    """Of ON; None: there is none."""


@dataclass(frozen=True)
class Select:
    """A query."""

    place: Place
    items: tuple[Selected, ...]
    source: FlinkReference | Select | United | Windowed
    alias: str | None = None
    """Of a subquery in FROM."""
    where: Node | None = None
    groups: tuple[Node, ...] | None = None
    """Of GROUP BY; None: there is none."""
    having: Node | None = None
    distinct: Place | None = None
    """Where DISTINCT is."""
    refused: tuple[tuple[Place, str], ...] = ()
    """What is part of Flink's grammar, and cannot run yet: where it is, and the sentence."""
    unnested: tuple[FlinkUnnestedJoin, ...] = ()
    """The joins of FROM, in their order."""


@dataclass(frozen=True)
class United:
    """Queries with UNION ALL between them."""

    place: Place
    queries: tuple[Select, ...]


Query = Select | United


@dataclass(frozen=True)
class View:
    """CREATE VIEW."""

    place: Place
    name: str
    columns: tuple[str, ...]
    query: Query
    text: str
    if_not_exists: bool = False
    named: tuple[View, ...] = ()
    """The queries of WITH, each for those behind it."""


@dataclass(frozen=True)
class FlinkInsert:
    """INSERT INTO."""

    place: Place
    table: str
    table_place: Place
    columns: tuple[str, ...]
    queries: tuple[Select, ...]
    """Each is a flow of its own, from a table of its own; between them is UNION ALL."""
    text: str
    """As it is written, for people."""
    named: tuple[View, ...] = ()
    """The queries of WITH, each for those behind it."""

    @property
    def query(self) -> Select:
        """The only one, of an INSERT that was divided into its parts."""
        return self.queries[0]

    @property
    def parts(self) -> tuple[FlinkInsert, ...]:
        return tuple(replace(self, queries=(one,)) for one in self.queries)


@dataclass(frozen=True)
class Set:
    """SET 'key' = 'value'."""

    option: Option


@dataclass(frozen=True)
class Remark:
    """A statement without effect here."""

    place: Place
    message: str


Statement = FlinkCreateTable | View | FlinkInsert | Set | Remark
