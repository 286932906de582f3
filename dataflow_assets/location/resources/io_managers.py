"""IO managers: who writes what an asset returns, and hands tables to the assets downstream.

One for each system whose sink has frames (`sdk/table_frames.py`), under the sink's type. A flow's
lazy drain is consumed; a Spark DataFrame of a user's asset is written, by the `mode` of the asset's
metadata: `overwrite` (the default), `append` or `upsert` (by the columns of `key`). A table
upstream arrives as a lazy DataFrame. Of an asset with partitions only those of the run are
overwritten, and those read that its reader asks for, by the columns of `partition_expr`.

Tables are found by asset key, `[system, connection, schema or namespace, table]`: a connection is
one that a flow of this location writes to, so that nothing is declared twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from inspect import getdoc
from typing import TYPE_CHECKING, Any, get_args

import dagster as dg

from dataflow_assets.assets import Draining, io_manager_key
from dataflow_assets.assets.graph import Graph, Key
from dataflow_assets.assets.metadata import COLUMN_SCHEMA, ROW_COUNT, column_schema, place
from dataflow_assets.contracts import Address, Connector
from dataflow_assets.errors import DataflowError, PermanentError, TransientError, outcome
from dataflow_assets.flow import Flow, asset_key, mangle
from dataflow_assets.location.resources import partitions
from dataflow_assets.registry import sinks
from dataflow_assets.runs.redaction import mask
from dataflow_assets.sdk.database import split
from dataflow_assets.sdk.table_frames import FrameSink, Mode, TableFrames
from dataflow_assets.secrets import resolve
from dataflow_assets.spark.errors import task_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MODES: tuple[Mode, ...] = get_args(Mode)
Context = dg.InputContext | dg.OutputContext
_Connection = tuple[Flow, Connector, str]  # who declares it, and what its tables' keys call it


class FlowIOManager(dg.IOManager):
    """Consumes the lazy drain of a flow; the IO managers of table systems build on it."""

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Drains the flow, or writes what a user's asset returned."""
        if isinstance(obj, Draining):
            context.add_output_metadata(obj.write(context.asset_key))
        elif obj is not None:
            self.write(context, obj)

    def load_input(self, context: dg.InputContext) -> Any:
        raise dg.Failure(
            f"{_name(context)} cannot be read as a table yet: read it with a client of its system, "
            f"and name it in `deps` instead of as an argument",
            allow_retries=False,
        )

    def write(self, context: dg.OutputContext, obj: object) -> None:
        raise dg.Failure(
            f"{_name(context)}: a {type(obj).__name__} cannot be written to this system yet",
            allow_retries=False,
        )


class TableIOManager(FlowIOManager):
    """Spark DataFrames to the tables of one system and back, on the connections of its flows."""

    def __init__(
        self,
        system: str,
        connections: Mapping[str, _Connection],
        tables: Mapping[Key, _Connection],
        held: ExitStack,
    ) -> None:
        self._system, self._connections, self._tables = system, connections, tables
        self._held = held
        """What the frames that were read need, as long as the run."""

    def write(self, context: dg.OutputContext, obj: object) -> None:
        """Writes a Spark DataFrame; anything else is refused."""
        if not hasattr(obj, "mapInArrow"):
            raise dg.Failure(
                f"{_name(context)} returns a {type(obj).__name__}; this IO manager takes a Spark "
                f"DataFrame (for example spark.createDataFrame(...))",
                allow_retries=False,
            )
        frame: Any = obj
        with self._translate_errors(context):
            mode, key = _mode(context, frame.columns)
            kept = (
                partitions.written_partitions(context, _output_metadata(context))
                if mode == "overwrite"
                else None
            )
            if kept is not None:
                kept.check("the frame", frame.columns)
            frames, address = self._frames(context)
            rows = frames.write(frame, mode, key, kept)
            described = self._describe(context, frames)
            context.add_output_metadata({**place(address), "rows": rows, "mode": mode, **described})

    def _describe(self, context: dg.OutputContext, frames: TableFrames) -> dict[str, Any]:
        """The table after the write; the rows are in it, so a failure here is only a warning."""
        try:
            columns, total = frames.describe()
        except DataflowError as error:
            context.log.warning(self._mask(f"{_name(context)}: no columns to show: {error}"))
            return {}
        count = {} if total is None else {ROW_COUNT: total}
        return {COLUMN_SCHEMA: column_schema(columns), **count}

    def load_input(self, context: dg.InputContext) -> "DataFrame | None":
        """A lazy DataFrame of the table upstream; `columns` of the input's metadata choose some.

        None where no partition is read, and no table is there: an asset reads its own day before.
        """
        with self._translate_errors(context):
            only = partitions.read(context, _upstream(context))
            frames, _ = self._frames(context)
            if only and not only.products and isinstance(outcome(frames.describe), PermanentError):
                return None
            columns = _columns(context)
            return frames.read(context.resources.spark.session(), columns, self._held, only)

    def _frames(self, context: Context) -> tuple[TableFrames, Address]:
        """The table, with its connection's secrets in place, and where it is."""
        parts = context.asset_key.path
        if not 3 <= len(parts) <= 5 or parts[0] != self._system:
            raise PermanentError(
                f"asset key {_name(context)}: a table of {self._system} is known as "
                f'["{self._system}", connection, schema or namespace, table]'
            )
        own = self._tables.get(tuple(parts))
        flow, declared, connection = own or self._connection(parts[1])
        sink: Any = resolve(declared, flow.secrets)
        where = (own and sink.names_of_secrets()) or _names(context, parts)
        return sink.frames(*where), Address(self._system, connection, *where)

    def _connection(self, name: str) -> _Connection:
        if name in self._connections:
            return self._connections[name]
        addresses = ", ".join(sorted(self._connections)) or "(none)"
        raise PermanentError(
            f"no flow of this location writes to a {self._system} connection called {name}, so its "
            f"address is not known; known ones: {addresses}"
        )

    @contextmanager
    def _translate_errors(self, context: Context) -> Iterator[None]:
        from pyspark.errors import PySparkException

        try:
            yield
        except DataflowError as error:
            raise self._failure(context, error) from None
        except PySparkException as error:
            raise self._failure(context, task_failure(error)) from error

    def _failure(self, context: Context, error: DataflowError) -> dg.Failure:
        text = self._mask(f"{_name(context)}: {error}")
        return dg.Failure(text, allow_retries=isinstance(error, TransientError))

    def _mask(self, text: str) -> str:
        """Nothing that a client says shows a secret."""
        return mask(text, [flow for flow, _, _ in self._connections.values()])


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
            kinds = " or ".join(f'"{kind.type}"' for kind in _frame_sinks())
            raise dg.Failure(
                f"{_name(context)} returns a Spark {type(obj).__name__}, which is a plan and no "
                f"data: it cannot be stored as a file. Say where its rows go: "
                f"@dg.asset(io_manager_key=...) with {kinds}",
                allow_retries=False,
            )
        self._files.handle_output(context, obj)

    def load_input(self, context: dg.InputContext) -> object:
        return self._files.load_input(context)


def io_managers(graph: Graph) -> dict[str, Any]:
    """An IO manager for each system that something is written to or has frames, by its key."""
    addresses = [node.branch.address for node in graph.nodes]
    addresses += [table.address for table in graph.errors.values()]
    systems = {io_manager_key(address) for address in addresses}
    flows: dict[str, Any] = {system: FlowIOManager() for system in sorted(systems)}
    return flows | {kind.type: _tables(kind, graph) for kind in _frame_sinks()}


def _frame_sinks() -> list[type[FrameSink]]:
    return [kind for kind in sinks().values() if issubclass(kind, FrameSink)]


def _tables(kind: type[FrameSink], graph: Graph) -> dg.IOManagerDefinition:
    @dg.io_manager(required_resource_keys={"spark"}, description=getdoc(kind.frames))
    def make(context: dg.InitResourceContext) -> Any:  # noqa: ARG001 - a generator, unknown to types
        with ExitStack() as held:
            yield TableIOManager(
                kind.type, _connections(graph, kind.type), _tables_of(graph, kind.type), held
            )

    return make


def _connections(graph: Graph, system: str) -> dict[str, _Connection]:
    """Connections by the name that asset keys show; the first flow's declaration counts."""
    connections: dict[str, _Connection] = {}
    for flow, sink, address in _written_tables(graph):
        if address.system == system:
            connections.setdefault(mangle(address.connection), (flow, sink, address.connection))
    return connections


def _tables_of(graph: Graph, system: str) -> dict[Key, _Connection]:
    """The tables that flows write, by asset key: Secrets may know the names of some."""
    return {
        asset_key(address): (flow, sink, address.connection)
        for flow, sink, address in _written_tables(graph)
        if address.system == system
    }


def _written_tables(graph: Graph) -> Iterator[tuple[Flow, Connector, Address]]:
    """All branches, then the error sinks, which can be read as any table."""
    for node in graph.nodes:
        yield node.flow, node.branch.sink, node.branch.address
    for node in graph.nodes:
        rejects = node.flow.policies.rejects
        if rejects.sink is not None and rejects.address is not None:
            yield node.flow, rejects.sink, rejects.address


def _mode(context: dg.OutputContext, columns: Sequence[str]) -> tuple[Mode, list[str]]:
    metadata = _output_metadata(context)
    mode, key = metadata.get("mode", "overwrite"), _as_list(metadata.get("key") or ())
    if mode not in MODES:
        raise PermanentError(f"metadata mode {mode!r}: allowed are {', '.join(MODES)}")
    if mode == "upsert" and not key:
        raise PermanentError("metadata mode 'upsert' needs metadata `key`: a column or a list")
    if missing := [name for name in key if name not in columns]:
        raise PermanentError(
            f"metadata key: the frame has no column {', '.join(missing)}; it has "
            f"{', '.join(columns)}"
        )
    return mode, key


def _columns(context: dg.InputContext) -> list[str] | None:
    """The columns that an input asks for; None: all of them."""
    columns = _plain(context.definition_metadata).get("columns")
    if columns is None:
        return None
    if names := _as_list(columns):
        return names
    raise PermanentError("metadata columns is empty: name the columns to read, or leave it out")


def _output_metadata(context: dg.OutputContext) -> dict[str, Any]:
    """The asset's metadata, and what the run itself has added."""
    return {**_plain(context.definition_metadata), **_plain(context.output_metadata)}


def _upstream(context: Context) -> dict[str, Any]:
    upstream = context.upstream_output if isinstance(context, dg.InputContext) else context
    return _plain(upstream.definition_metadata) if upstream else {}


def _plain(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: getattr(value, "value", value) for name, value in (metadata or {}).items()}


def _as_list(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _names(context: Context, parts: Sequence[str]) -> tuple[str | None, str]:
    """Namespace and table: keys are mangled, metadata names are exact."""
    metadata = _upstream(context)
    text = str(metadata.get("dagster/table_name") or ".".join(parts[2:]))
    namespace, table = split(text)
    return metadata.get("schema") or namespace or None, table


def _name(context: Context) -> str:
    return context.asset_key.to_user_string()
