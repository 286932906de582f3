"""Iceberg tables that flows write are kept small: every commit leaves a snapshot behind."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain
from typing import Any

import dagster as dg

from dataflow_assets.assets.graph import Graph, Key
from dataflow_assets.contracts import Checkpoint
from dataflow_assets.errors import DataflowError
from dataflow_assets.flow import Branch, Flow, asset_key
from dataflow_assets.redaction import mask
from dataflow_assets.secrets import resolve

SYSTEM = "iceberg"
NAME = "iceberg_maintenance"


class TablesConfig(dg.Config):
    """What stays."""

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
    """The job and its schedule, which ships stopped; nothing where no flow writes to Iceberg."""
    tables = list(_tables(graph))
    if not tables:
        return [], []
    job = _job(tables)
    return [job], [dg.ScheduleDefinition(f"{NAME}_schedule", job=job, cron_schedule="43 2 * * *")]


@dataclass(frozen=True)
class _Table:
    """One table, with a flow that writes to it."""

    branch: Branch
    flow: Flow
    key: Key | None
    """Its page; an error sink has none."""
    readers: tuple[Flow, ...]
    """The flows that read it."""

    def unread(self) -> datetime | None:
        """Since when a reader has not come to its snapshots; None where none waits for any."""
        from dataflow_assets.connectors.iceberg.maintenance.unread import unread_since

        stored = chain.from_iterable(map(_checkpoints, self.readers))
        found = (unread_since(checkpoint.positions) for checkpoint in stored)
        return min((since for since in found if since), default=None)


def _checkpoints(flow: Flow) -> Iterator[Checkpoint]:
    resolved = flow.resolved()
    for branch in resolved.branches:
        checkpoint = branch.sink.peek(resolved.target(branch))
        if checkpoint is not None:
            yield checkpoint


def _tables(graph: Graph) -> Iterator[_Table]:
    """Each table once: those of branches, then those of error sinks."""
    readers: dict[Key, dict[str, Flow]] = {}
    for node in graph.nodes:
        readers.setdefault(asset_key(node.flow.source_address), {})[node.flow.id] = node.flow
    found: dict[Key, _Table] = {}
    for key, (branch, flow, page) in _written(graph):
        reading = tuple(readers.get(key, {}).values())
        found.setdefault(key, _Table(branch, flow, page, reading))
    yield from (table for table in found.values() if table.branch.address.system == SYSTEM)


def _written(graph: Graph) -> Iterator[tuple[Key, tuple[Branch, Flow, Key | None]]]:
    for node in graph.nodes:
        yield node.table, (node.branch, node.flow, node.table)
    for node in graph.nodes:
        if (errors := node.flow.policies.rejects.sink) is not None:
            branch = Branch(errors)
            yield asset_key(branch.address), (branch, node.flow, None)


def _job(tables: list[_Table]) -> dg.JobDefinition:
    @dg.op(description="Expires old snapshots, and deletes old files that no snapshot lists.")
    def tidy_tables(context: dg.OpExecutionContext, config: TablesConfig) -> None:
        failed = [text for one in tables if (text := _tidy(one, config, context))]
        if failed:
            raise dg.Failure("\n".join(failed), allow_retries=False)

    @dg.job(
        name=NAME,
        description=(
            "Expires old snapshots of the Iceberg tables that flows write, and deletes what failed "
            "tasks left. Checkpoints are not touched, and flows need not stop."
        ),
        executor_def=dg.in_process_executor,
        resource_defs={"io_manager": dg.mem_io_manager},
    )
    def tables_job() -> None:
        tidy_tables()

    return tables_job


def _tidy(table: _Table, config: TablesConfig, context: dg.OpExecutionContext) -> str:
    """Why one table could not be tidied; the others are not affected."""
    from dataflow_assets.connectors.iceberg.maintenance.maintain import Keep, maintain

    try:
        keep = Keep(config.snapshots, config.days, config.orphan_days, config.unread_days)
        sink: Any = resolve(table.branch.sink, table.flow.secrets)
        for tidied in maintain(sink, keep, unread=table.unread()):
            context.log.info("%s", asdict(tidied))
            _tell(table, asdict(tidied), context)
    except DataflowError as error:
        text = mask(f"{table.branch.address}: {error}", [table.flow, *table.readers])
        context.log.error(text)  # noqa: TRY400 - the chain may show what a client thinks fit
        return text
    return ""


def _tell(table: _Table, figures: dict[str, Any], context: dg.OpExecutionContext) -> None:
    """An observation on the table's page; rejected records have no page of their own."""
    name, address = figures.pop("table"), table.branch.address
    if table.key is not None and name == f"{address.namespace}.{address.name}":
        removed = {f"removed_{key}": value for key, value in figures.items() if key != "note"}
        note = {"note": figures["note"]} if figures["note"] else {}
        key = dg.AssetKey(list(table.key))
        context.log_event(dg.AssetObservation(asset_key=key, metadata={**removed, **note}))
