"""All that a manifest may say about the source `postgresql-cdc`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.connectors.postgresql import dsn
from dataflow_assets.contracts import Address, Source, SourceTraits
from dataflow_assets.contracts.declared import ChoosesColumns
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.database import ColumnName, Database, join, slugify, split
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.spec import Addition

USUAL_SCHEMA = "public"
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")  # PostgreSQL's own rule

Place = tuple[str, str]
"""Schema and name of a table."""


class PostgresqlCdcOptions(Database, Source, ChoosesColumns):
    """Options of a source that reads the log: a slot, a publication and tables."""

    icon: ClassVar = "postgres"

    connection_string: SecretStr | None = None
    """`postgresql://` URL or libpq key=value text. The role needs the attribute REPLICATION, and
    SELECT on the tables."""
    slot_name: str | None = None
    """The replication slot, which no other flow or program may read. Its name has lower-case
    letters, digits and `_`."""
    slot_name_secret_ref: Annotated[SecretRef | None, Fills("slot_name", required=True)] = None
    """Secret with the slot's name."""
    publication_name: str | None = None
    """The publication that the tables belong to."""
    publication_name_secret_ref: Annotated[
        SecretRef | None, Fills("publication_name", required=True)
    ] = None
    """Secret with the publication's name."""
    tables: Annotated[tuple[str, ...], Field(min_length=1)]
    """The tables to read, each `name` or `schema.name`; the schema is `public` unless given. A
    partitioned table is given by its root. A name with a dot in it needs double quotes."""
    snapshot_mode: Literal["initial", "never", "always"] = "initial"
    """`initial`: the first run loads the rows of the tables, then all changes since are read; the
    rows of a table that is added to `tables` later are loaded when it is added. `never`: only
    changes are read, from the position of the slot on. `always`: each run loads the rows of all
    tables again, then follows the changes; the sink must upsert, and no lane drives the flow."""
    create_slot_if_not_exists: bool = True
    """Create the slot in the first run, if it is missing."""
    create_publication_if_not_exists: bool = True
    """Create the publication for `tables` in the first run, if it is missing."""
    plugin: Literal["pgoutput"] = "pgoutput"
    """The output plugin. `pgoutput` is built into the server."""
    heartbeat_interval_seconds: Annotated[int, Field(ge=0)] = 10
    """If other tables make the server's log grow by 1 MiB or more while these tables do not change,
    the position moves forward after so many seconds, so that the server can remove that log. `0`:
    the position moves with the next change only."""
    primary_key_column: ColumnName = "id"
    """The column whose value is the metadata `id`."""
    include_columns: tuple[ColumnName, ...] = ()
    """The columns to read, whatever their case; by default all."""
    exclude_columns: tuple[ColumnName, ...] = ()
    """Columns that are not read."""
    envelope_format: Literal["row", "debezium"] = "row"
    """`row`: a record is the row after the change; for a delete, the row before it. `debezium`: a
    record has one column, `payload`, with `before`, `after`, `op` and `source`."""
    on_truncate: Annotated[Literal["fail", "skip"], Addition()] = "fail"
    """What happens when somebody runs TRUNCATE on a table: the flow stops (`fail`), or goes on
    without a record of it (`skip`). With `envelopeFormat: debezium` the setting has no effect: a
    TRUNCATE is a record with `op: t`."""
    schema_changes: Annotated[Literal["fail", "add", "ignore"], Addition()] = "fail"
    """What happens when a table gets a column that the target does not have. `fail`: the flow stops
    at the first change with the column, and names the statement to run. `add`: the target gets the
    column, with its type in the source. `ignore`: the column is left out."""

    @field_validator("slot_name")
    @classmethod
    def _valid_slot(cls, value: str | None) -> str | None:
        if value is not None and not _SLOT_NAME.fullmatch(value):
            raise ValueError(
                "a slot's name has lower-case letters, digits and underscores only, at most 63"
            )
        return value

    @field_validator("tables")
    @classmethod
    def _distinct(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        places = [place_of(table) for table in value]
        for place in places:
            if not place[1] or places.count(place) > 1:
                raise ValueError(f"names {join(*place) or 'nothing'} twice or not at all")
        return value

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.slot_name is None and self.slot_name_secret_ref is None:
            yield "slotName or slotNameSecretRef is required"
        if self.publication_name is None and self.publication_name_secret_ref is None:
            yield "publicationName or publicationNameSecretRef is required"
        if self.envelope_format == "debezium" and self.schema_changes != "fail":
            yield (
                f"schemaChanges: {self.schema_changes} has no effect with envelopeFormat: "
                "debezium, whose records are one column, with all columns of the table in it: "
                "leave schemaChanges out"
            )

    @property
    def loads(self) -> bool:
        """Returns whether the rows of tables are loaded before their changes are read."""
        return self.snapshot_mode != "never"

    @property
    @override
    def traits(self) -> SourceTraits:
        always = self.snapshot_mode == "always"
        return SourceTraits(
            # An event of Debezium's is a row of its own, whatever it tells of.
            sends_deletes="postgresql-cdc" if self.envelope_format == "row" else "",
            rereads="snapshotMode: always" if always else "",
            new_columns=self.schema_changes,
            incremental=not always,
            loads_each_run=always,
            reserved=f"slot {self._named_slot} of {self.connection_name}",
        )

    @override
    def server(self) -> str:
        return dsn.server(self.dsn())

    @override
    def servers(self) -> tuple[str, ...]:
        return dsn.servers(self.dsn())

    @override
    def address(self) -> Address:
        """The table's own address where there is one table, so that lineage reaches its writers."""
        if len(self.tables) == 1:
            return Address("postgresql", self.connection_name, *self.places[0])
        return Address("postgresql", self.connection_name, None, self._named_slot)

    @property
    def _named_slot(self) -> str:
        """The slot's name, or that of the Secret that has it."""
        if self.slot_name_secret_ref:
            return slugify(f"{self.slot_name_secret_ref.name}_{self.slot_name_secret_ref.key}")
        return self.slot

    @property
    def places(self) -> tuple[Place, ...]:
        return tuple(place_of(table) for table in self.tables)

    @property
    def slot(self) -> str:
        """The slot's name. Secrets must be resolved."""
        return self.slot_name or ""

    def check_slot(self) -> None:
        """Raises PermanentError where a Secret has a name that no slot can have."""
        if not _SLOT_NAME.fullmatch(self.slot):
            raise PermanentError(
                "slotNameSecretRef: the Secret's value is not the name of a slot, which has "
                "lower-case letters, digits and underscores only, at most 63; check it for spaces "
                "and line ends"
            )

    @property
    def publication(self) -> str:
        """The publication's name. Secrets must be resolved."""
        return self.publication_name or ""

    @property
    def title(self) -> str:
        """Returns what is read, for people. Secrets must be resolved."""
        return f"slot {self.slot} of {self.server()}"

    @override
    def leaves_out(self, column: str) -> bool:
        return self.envelope_format == "row" and not self.reads(column)

    def reads(self, column: str) -> bool:
        """Returns whether a column is read, by `includeColumns` and `excludeColumns`.

        Args:
            column: its name.
        """
        name = column.casefold()
        included = not self.include_columns or name in _fold(self.include_columns)
        return included and name not in _fold(self.exclude_columns)


def place_of(table: str) -> Place:
    """Schema and name of a table as a manifest says it."""
    schema, name = split(table)
    return schema or USUAL_SCHEMA, name


def _fold(names: tuple[str, ...]) -> set[str]:
    return {name.casefold() for name in names}
