"""The statements of a file, each with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dataflow_assets.languages.common.tokens import Place
from dataflow_assets.languages.pipelines.rows.types import PipelineType


@dataclass(frozen=True)
class PipelineName:
    """A column, as it is written."""

    place: Place
    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Value:
    """A literal."""

    place: Place
    value: str | int | float | bool | None


@dataclass(frozen=True)
class PipelineCall:
    """A function of arguments; `name` in capitals."""

    place: Place
    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class PipelinePath:
    """`given::a::$b`: the operators and keys behind a value."""

    place: Place
    given: Node
    keys: tuple[str | int, ...]
    form: Literal["JSON", "STRING", "DOUBLE"]


Node = PipelineName | Value | PipelineCall | PipelinePath


@dataclass(frozen=True)
class PipelineColumnDefinition:
    """A column of CREATE TABLE or ALTER TABLE."""

    name: PipelineName
    type: PipelineType
    nullable: bool = True
    computed: Node | None = None


@dataclass(frozen=True)
class Noted:
    """A statement that is accepted and does nothing here."""

    place: Place
    what: str
    message: str


@dataclass(frozen=True)
class Use:
    """USE name."""

    place: Place
    name: str


@dataclass(frozen=True)
class SetGlobal:
    """SET GLOBAL key = value."""

    place: Place
    key: str
    value: str


@dataclass(frozen=True)
class CreateTable:
    """CREATE TABLE."""

    place: Place
    name: PipelineName
    columns: tuple[PipelineColumnDefinition, ...]
    if_not_exists: bool = False
    key: tuple[PipelineName, ...] = ()
    """PRIMARY KEY."""


@dataclass(frozen=True)
class AddColumn:
    """ALTER TABLE ... ADD COLUMN."""

    place: Place
    table: PipelineName
    column: PipelineColumnDefinition


@dataclass(frozen=True)
class CreateIndex:
    """CREATE INDEX."""

    place: Place
    name: PipelineName
    table: PipelineName
    columns: tuple[PipelineName, ...]


@dataclass(frozen=True)
class PipelineInsert:
    """INSERT INTO table (columns) SELECT nodes FROM the batch."""

    place: Place
    table: PipelineName
    columns: tuple[PipelineName, ...]
    selected: tuple[Node, ...]
    updated: tuple[PipelineName, ...] | None = None
    """The columns of ON DUPLICATE KEY UPDATE, each of its own new value; None without it."""


@dataclass(frozen=True)
class CreateProcedure:
    """A procedure whose body is INSERTs alone."""

    place: Place
    name: PipelineName
    batch: PipelineName
    columns: tuple[PipelineColumnDefinition, ...]
    inserts: tuple[PipelineInsert, ...]


@dataclass(frozen=True)
class Json:
    """CONFIG or CREDENTIALS: texts by key; the values may be secret."""

    place: Place
    values: Mapping[str, str] = field(repr=False)
    places: Mapping[str, Place] = field(repr=False)


@dataclass(frozen=True)
class Mapped:
    """`column <- path` of FORMAT."""

    column: PipelineName
    path: tuple[str, ...]


@dataclass(frozen=True)
class PipelineOptions:
    """The options of CREATE PIPELINE and ALTER PIPELINE SET; None where one is not set."""

    config: Json | None = None
    credentials: Json | None = None
    batch_interval: int | None = None
    most_rows: int | None = None
    stop_on_error: bool | None = None


@dataclass(frozen=True)
class CreatePipeline:
    """CREATE PIPELINE."""

    place: Place
    name: PipelineName
    options: PipelineOptions
    inferred: bool = False
    replaces: bool = False
    if_not_exists: bool = False
    table: PipelineName | None = None
    procedure: PipelineName | None = None
    mapped: tuple[Mapped, ...] = ()
    skips_errors: bool = False


@dataclass(frozen=True)
class AlterPipeline:
    """ALTER PIPELINE ... SET."""

    place: Place
    name: PipelineName
    options: PipelineOptions


@dataclass(frozen=True)
class Switch:
    """START and STOP; without a name all pipelines that are declared above."""

    place: Place
    name: PipelineName | None
    on: bool
    lenient: bool = False
    """IF NOT RUNNING, IF RUNNING."""


@dataclass(frozen=True)
class DropPipeline:
    """DROP PIPELINE."""

    place: Place
    name: PipelineName
    if_exists: bool = False


Statement = (
    Noted
    | Use
    | SetGlobal
    | CreateTable
    | AddColumn
    | CreateIndex
    | CreateProcedure
    | CreatePipeline
    | AlterPipeline
    | Switch
    | DropPipeline
)
