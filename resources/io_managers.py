"""IO managers: who writes what an asset returns, and hands tables to the assets downstream.

One per table system. A flow's lazy drain is consumed; a Spark DataFrame of a user's asset is
written, by the `mode` of the asset's metadata: `overwrite` (the default), `append` or `upsert` (by
the columns of `key`). A table upstream arrives as a lazy DataFrame.

Tables are found by asset key, `[system, connection, schema or namespace, table]`: a connection is
one that a flow of this location writes to, so that nothing is declared twice.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import dagster as dg
import pyarrow as pa

from dataflow_assets.assets import Draining, io_manager_key
from dataflow_assets.assets.graph import Graph
from dataflow_assets.assets.metadata import COLUMN_SCHEMA, ROW_COUNT, column_schema, place
from dataflow_assets.contracts import Address, Sink
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.flow import Branch, Flow, mangle
from dataflow_assets.redaction import mask
from dataflow_assets.sdk.database import split
from dataflow_assets.secrets import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Mode = Literal["append", "overwrite", "upsert"]
MODES: tuple[Mode, ...] = ("append", "overwrite", "upsert")
Context = dg.InputContext | dg.OutputContext


class FlowIOManager(dg.IOManager):
    """Consumes the lazy drain of a flow; the IO managers of table systems build on it."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Drains the flow, or writes what a user's asset returned."""
        if isinstance(obj, Draining):
            context.add_output_metadata(obj.write(context.asset_key))
        elif obj is not None:
            self.write(context, obj)

    def load_input(self, context: dg.InputContext) -> Any:
        """The table upstream."""
        raise dg.Failure(
            f"{_name(context)} cannot be read as a table yet: read it with a client of its system, "
            f"and name it in `deps` instead of as an argument",
            allow_retries=False,
        )

    def write(self, context: dg.OutputContext, obj: object) -> None:
        """Writes what a user's asset returned."""
        raise dg.Failure(
            f"{_name(context)}: a {type(obj).__name__} cannot be written to this system yet",
            allow_retries=False,
        )


class TableIOManager(FlowIOManager):
    """Spark DataFrames to tables and back, on the connections of the location's flows."""

    system: ClassVar[str]

    def __init__(self, connections: Mapping[str, tuple[Flow, Branch]]) -> None:
        self._connections = connections

    @abstractmethod
    def sink_of(self, sink: Any, namespace: str | None, table: str) -> Any:
        """The same connection, another table."""

    @abstractmethod
    def write_frame(self, frame: "DataFrame", sink: Any, mode: Mode, key: Sequence[str]) -> int:
        """Writes the rows; how many."""

    @abstractmethod
    def describe(self, sink: Any) -> tuple[pa.Schema, int | None]:
        """The table's columns, as flows show them; its rows in all where that is known exactly."""

    @abstractmethod
    def read_frame(
        self, spark: "SparkSession", sink: Any, columns: Sequence[str] | None
    ) -> "DataFrame":
        """The table as a lazy frame."""

    def write(self, context: dg.OutputContext, obj: object) -> None:
        """Writes a Spark DataFrame; anything else is refused."""
        if not hasattr(obj, "mapInArrow"):
            raise dg.Failure(
                f"{_name(context)} returns a {type(obj).__name__}; this IO manager takes a Spark "
                f"DataFrame (for example spark.createDataFrame(...))",
                allow_retries=False,
            )
        frame: Any = obj
        with self._told(context):
            mode, key = _mode(context)
            sink, address = self._sink(context)
            rows = self.write_frame(frame, sink, mode, key)
            found = {**place(address), "rows": rows, "mode": mode, **self._table(context, sink)}
            context.add_output_metadata(found)

    def _table(self, context: dg.OutputContext, sink: Any) -> dict[str, Any]:
        """What the table has come to; the rows are in it, so a failure here is only a warning."""
        try:
            columns, total = self.describe(sink)
        except DataflowError as error:
            flows = [flow for flow, _ in self._connections.values()]
            context.log.warning(mask(f"{_name(context)}: no columns to show: {error}", flows))
            return {}
        count = {} if total is None else {ROW_COUNT: total}
        return {COLUMN_SCHEMA: column_schema(columns), **count}

    def load_input(self, context: dg.InputContext) -> "DataFrame":
        """A lazy DataFrame of the table upstream; `columns` of the input's metadata choose some."""
        with self._told(context):
            sink, _ = self._sink(context)
            columns = (context.definition_metadata or {}).get("columns")
            return self.read_frame(context.resources.spark.session(), sink, columns)

    def _sink(self, context: Context) -> tuple[Sink, Address]:
        """The table's declaration with its secrets in place, and where it is."""
        parts = context.asset_key.path
        if not 3 <= len(parts) <= 5 or parts[0] != self.system:
            raise PermanentError(
                f"asset key {_name(context)}: a table of {self.system} is known as "
                f'["{self.system}", connection, schema or namespace, table]'
            )
        flow, branch = self._connection(parts[1])
        namespace, table = _names(context, parts)
        sink = self.sink_of(resolve(branch.sink, flow.secrets), namespace, table)
        return sink, Address(self.system, branch.address.connection, namespace, table)

    def _connection(self, name: str) -> tuple[Flow, Branch]:
        if name in self._connections:
            return self._connections[name]
        known = ", ".join(sorted(self._connections)) or "(none)"
        raise PermanentError(
            f"no flow of this location writes to a {self.system} connection called {name}, so its "
            f"address is not known; known ones: {known}"
        )

    @contextmanager
    def _told(self, context: Context) -> Iterator[None]:
        """Our errors in one sentence; nothing that a client says shows a secret."""
        try:
            yield
        except DataflowError as error:
            flows = [flow for flow, _ in self._connections.values()]
            text = mask(f"{_name(context)}: {error}", flows)
            again = isinstance(error, TransientError)
            raise dg.Failure(text, allow_retries=again) from None


class PostgresqlIOManager(TableIOManager):
    """Tables of PostgreSQL. A write is one transaction; `overwrite` keeps the table itself."""

    system = "postgresql"

    def __init__(self, connections: Mapping[str, tuple[Flow, Branch]]) -> None:
        super().__init__(connections)
        self._snapshots: list[Any] = []

    def sink_of(self, sink: Any, namespace: str | None, table: str) -> Any:
        """The table in its schema."""
        from dataflow_assets.connectors.postgresql.frames.place import Place

        return Place(sink.dsn(), namespace or "public", table)

    def write_frame(self, frame: "DataFrame", sink: Any, mode: Mode, key: Sequence[str]) -> int:
        """COPY in tasks, one transaction at the end."""
        from dataflow_assets.connectors.postgresql.frames.write import write

        return write(frame, sink, mode, key)

    def describe(self, sink: Any) -> tuple[pa.Schema, int | None]:
        """PostgreSQL only estimates its rows."""
        from dataflow_assets.connectors.postgresql.frames.read import columns

        return columns(sink), None

    def read_frame(
        self, spark: "SparkSession", sink: Any, columns: Sequence[str] | None
    ) -> "DataFrame":
        """Read in tasks, in one snapshot that is held as long as this IO manager lives."""
        from dataflow_assets.connectors.postgresql.frames.read import Snapshot

        snapshot = Snapshot(sink)
        self._snapshots.append(snapshot)
        return snapshot.frame(spark, columns)


class IcebergIOManager(TableIOManager):
    """Tables of an Iceberg catalog. A write is one commit."""

    system = "iceberg"

    def sink_of(self, sink: Any, namespace: str | None, table: str) -> Any:
        """The table in its namespace."""
        update = {"namespace": namespace or sink.namespace, "table": table}
        return sink.model_copy(update=update)

    def write_frame(self, frame: "DataFrame", sink: Any, mode: Mode, key: Sequence[str]) -> int:
        """Files in tasks, one commit at the end."""
        from dataflow_assets.connectors.iceberg.frames.write import write

        return write(frame, sink, mode, key)

    def describe(self, sink: Any) -> tuple[pa.Schema, int | None]:
        """From the catalog."""
        from dataflow_assets.connectors.iceberg.frames.read import describe

        return describe(sink)

    def read_frame(
        self, spark: "SparkSession", sink: Any, columns: Sequence[str] | None
    ) -> "DataFrame":
        """The current snapshot, read in tasks."""
        from dataflow_assets.connectors.iceberg.frames.read import read

        return read(spark, sink, columns)


class ClickhouseIOManager(TableIOManager):
    """Tables of ClickHouse. A write is atomic by partition; `overwrite` exchanges the table."""

    system = "clickhouse"

    def sink_of(self, sink: Any, namespace: str | None, table: str) -> Any:
        """The table in its database."""
        from dataflow_assets.connectors.clickhouse import dsn
        from dataflow_assets.connectors.clickhouse.frames.place import Place

        connection = sink.dsn()
        return Place(connection, namespace or dsn.parse(connection).database, table)

    def write_frame(self, frame: "DataFrame", sink: Any, mode: Mode, key: Sequence[str]) -> int:
        """INSERTs in tasks beside the table, published at the end."""
        from dataflow_assets.connectors.clickhouse.frames.write import write

        return write(frame, sink, mode, key)

    def describe(self, sink: Any) -> tuple[pa.Schema, int | None]:
        """ClickHouse knows its rows, but not how many of them were replaced."""
        from dataflow_assets.connectors.clickhouse.frames.read import describe

        return describe(sink)

    def read_frame(
        self, spark: "SparkSession", sink: Any, columns: Sequence[str] | None
    ) -> "DataFrame":
        """One query, read in one task: what it sees is one state."""
        from dataflow_assets.connectors.clickhouse.frames.read import read

        return read(spark, sink, columns)


class DefaultIOManager(dg.ConfigurableIOManagerFactory[dg.IOManager]):
    """The default: small Python values as files; Spark frames not at all."""

    def create_io_manager(self, context: dg.InitResourceContext) -> dg.IOManager:
        """Files below the instance's storage folder, as Dagster's own default."""
        return _Refusing(dg.FilesystemIOManager().create_io_manager(context))


class _Refusing(dg.IOManager):
    def __init__(self, files: dg.IOManager) -> None:
        self._files = files

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        if type(obj).__module__.startswith("pyspark."):
            raise dg.Failure(
                f"{_name(context)} returns a Spark {type(obj).__name__}, which is a plan and no "
                f"data: it cannot be stored as a file. Say where its rows go: "
                f'@dg.asset(io_manager_key="iceberg") or "postgresql"',
                allow_retries=False,
            )
        self._files.handle_output(context, obj)

    def load_input(self, context: dg.InputContext) -> object:
        return self._files.load_input(context)


def io_managers(graph: Graph) -> dict[str, Any]:
    """An IO manager for each system that something is written to, by its key."""
    addresses = [node.branch.address for node in graph.nodes]
    addresses += [table.address for table in graph.errors.values()]
    systems = {io_manager_key(address) for address in addresses}
    flows: dict[str, Any] = {system: FlowIOManager() for system in sorted(systems)}
    kinds = (PostgresqlIOManager, IcebergIOManager, ClickhouseIOManager)
    tables = {kind.system: _tables(kind, graph) for kind in kinds}
    return flows | tables


def _tables(kind: type[TableIOManager], graph: Graph) -> dg.IOManagerDefinition:
    @dg.io_manager(required_resource_keys={"spark"}, description=kind.__doc__)
    def make(context: dg.InitResourceContext) -> dg.IOManager:  # noqa: ARG001
        return kind(_connections(graph, kind.system))

    return make


def _connections(graph: Graph, system: str) -> dict[str, tuple[Flow, Branch]]:
    """Connections by the name that asset keys show; the first flow's declaration counts."""
    found: dict[str, tuple[Flow, Branch]] = {}
    ends = [(node.flow, node.branch) for node in graph.nodes]
    ends += [(flow, errors) for flow, _ in ends if (errors := _errors(flow))]
    for flow, branch in ends:
        address = branch.address
        if address.system == system:
            found.setdefault(mangle(address.connection), (flow, branch))
    return found


def _errors(flow: Flow) -> Branch | None:
    """The error sink, which can be read as any table."""
    rejects = flow.policies.rejects
    return Branch(rejects.sink, rejects.connection) if rejects.sink else None


def _mode(context: dg.OutputContext) -> tuple[Mode, list[str]]:
    """From the output's metadata, else the asset's."""
    metadata = {**(context.definition_metadata or {}), **(context.output_metadata or {})}
    given = {name: getattr(value, "value", value) for name, value in metadata.items()}
    mode, key = given.get("mode", "overwrite"), given.get("key", ())
    if mode not in MODES:
        raise PermanentError(f"metadata mode {mode!r}: allowed are {', '.join(MODES)}")
    return mode, [key] if isinstance(key, str) else list(key)


def _names(context: Context, parts: Sequence[str]) -> tuple[str | None, str]:
    """Namespace and table: keys are mangled, metadata names are exact."""
    upstream = context.upstream_output if isinstance(context, dg.InputContext) else context
    metadata = (upstream.definition_metadata if upstream else None) or {}
    exact = metadata.get("dagster/table_name")
    text = str(getattr(exact, "value", exact)) if exact else ".".join(parts[2:])
    namespace, table = split(text)
    return namespace or None, table


def _name(context: Context) -> str:
    return context.asset_key.to_user_string()
