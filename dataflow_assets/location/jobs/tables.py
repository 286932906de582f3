"""Tables that flows write are kept small: one job for each system whose tables need that."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import dagster as dg

from dataflow_assets.assets.graph import Graph, Key
from dataflow_assets.contracts import Address, Connector, Positions
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Flow, asset_key
from dataflow_assets.runs.redaction import mask
from dataflow_assets.sdk.maintenance import Keep, Maintained
from dataflow_assets.secrets import resolve

OP = "tidy_tables"


class TablesConfig(dg.Config):
    """Options of a job that tidies tables."""

    snapshots: int = 10
    """At least so many snapshots of each table, however old."""
    days: float = 1.0
    """All snapshots that were current within so many days; an hour at least."""
    orphan_days: float = 3.0
    """Files that no snapshot lists, until they are so old; a day at least. No run may last longer,
    and no DataFrame that is read again and again."""
    unread_days: float = 14.0
    """Snapshots that a flow of this location has not read yet stay until they are so old."""


def table_jobs(graph: Graph) -> tuple[list[dg.JobDefinition], list[dg.ScheduleDefinition]]:
    """The jobs and their schedules, which ship stopped; nothing where no table needs maintenance.

    Dagster stores under a schedule's name whether it is switched on: the names do not change.
    """
    by_system: dict[str, list[_Table]] = {}
    for table in _tables(graph):
        by_system.setdefault(table.address.system, []).append(table)
    jobs = [_job(system, by_system[system]) for system in sorted(by_system)]
    return jobs, [
        dg.ScheduleDefinition(f"{job.name}_schedule", job=job, cron_schedule="43 2 * * *")
        for job in jobs
    ]


@dataclass(frozen=True)
class _Table:
    """One table, with a flow that writes to it."""

    sink: Maintained
    address: Address
    flow: Flow
    key: Key | None
    """Its page; an error sink has none."""
    readers: tuple[Flow, ...]
    """The flows that read it."""

    def checkpoints(self) -> Iterator[Positions]:
        for flow in (reader.resolve() for reader in self.readers):
            for branch in flow.branches:
                if checkpoint := branch.sink.peek(flow.target(branch)):
                    yield checkpoint.positions


def _tables(graph: Graph) -> Iterator[_Table]:
    """Each table once: those of branches, then those of error sinks."""
    readers: dict[Key, dict[str, Flow]] = {}
    for node in graph.nodes:
        readers.setdefault(asset_key(node.flow.source_address), {})[node.flow.id] = node.flow
    tables: dict[Key, _Table] = {}
    for key, sink, address, flow, page in _written_tables(graph):
        if isinstance(sink, Maintained):
            reading = tuple(readers.get(key, {}).values())
            tables.setdefault(key, _Table(sink, address, flow, page, reading))
    yield from tables.values()


def _written_tables(graph: Graph) -> Iterator[tuple[Key, Connector, Address, Flow, Key | None]]:
    for node in graph.nodes:
        yield node.table, node.branch.sink, node.branch.address, node.flow, node.table
    for node in graph.nodes:
        rejects = node.flow.policies.rejects
        if rejects.sink is not None and rejects.address is not None:
            yield asset_key(rejects.address), rejects.sink, rejects.address, node.flow, None


def _job(system: str, tables: Sequence[_Table]) -> dg.JobDefinition:
    # Names of ops are unique in a location; the launchpad shows the alias.
    @dg.op(
        name=f"tidy_{system}_tables",
        description="Expires old snapshots, and deletes old files that no snapshot lists.",
    )
    def tidy_tables(context: dg.OpExecutionContext, config: TablesConfig) -> None:
        failed = [text for one in tables if (text := _tidy(one, config, context))]
        if failed:
            raise dg.Failure("\n".join(failed), allow_retries=False)

    @dg.job(
        name=f"{system}_maintenance",
        description=(
            f"Expires old snapshots of the {system} tables that flows write, and deletes what "
            "failed tasks left. Checkpoints are not touched, and flows need not stop."
        ),
        executor_def=dg.in_process_executor,
        resource_defs={"io_manager": dg.mem_io_manager},
    )
    def tables_job() -> None:
        tidy_tables.alias(OP)()

    return tables_job


def _tidy(table: _Table, config: TablesConfig, context: dg.OpExecutionContext) -> str:
    """Why one table could not be tidied; the others are not affected."""
    try:
        keep = Keep(config.snapshots, config.days, config.orphan_days, config.unread_days)
        sink = resolve(table.sink, table.flow.secrets)
        for tidied in sink.maintain(keep, list(table.checkpoints())):
            context.log.info("%s", asdict(tidied))
            figures = asdict(tidied)
            name, address = figures.pop("table"), table.address
            if table.key is not None and name == f"{address.namespace}.{address.name}":
                removed = {
                    f"removed_{key}": value for key, value in figures.items() if key != "note"
                }
                note = {"note": figures["note"]} if figures["note"] else {}
                key = dg.AssetKey(list(table.key))
                context.log_event(dg.AssetObservation(asset_key=key, metadata={**removed, **note}))
    except DataflowError as error:
        text = mask(f"{table.address}: {error}", [table.flow, *table.readers])
        context.log.error(text)  # noqa: TRY400 - the chain may show what a client thinks fit
        return text
    return ""
