"""Metadata of assets and events: names, columns, figures, checks. No values."""

import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg
import pyarrow as pa

from dataflow_assets.assets import mirror
from dataflow_assets.assets.graph import AssetNode, Graph
from dataflow_assets.assets.lineage import origins
from dataflow_assets.assets.tally import Figures
from dataflow_assets.contracts import Address, Checkpoint, Lag, Note, kind_of
from dataflow_assets.contracts.declared import KeepsLog
from dataflow_assets.flow import Flow
from dataflow_assets.languages.language import languages
from dataflow_assets.registry import sinks, sources
from dataflow_assets.runs.replay import keeps
from dataflow_assets.sdk.database import join

DATA_VERSION = "dagster/data_version"
CHECKPOINT = "checkpoint"
STATE = "state"
PAUSE = "paused"
LOG = "log"
ROW_COUNT = "dagster/row_count"
COLUMN_SCHEMA = "dagster/column_schema"
COLUMN_LINEAGE = "dagster/column_lineage"
LAG_CHECK, REJECTED_CHECK, SLOT_CHECK = "lag", "rejected", "slot"
QUIET_SECONDS = 900.0  # without a rejected record, after which the check passes again
LAGGING_SECONDS = 300.0
UNKNOWN_AGE = "not known: the source gave none of the records that are not read in time"
HELD_BYTES = 1 << 30  # of log that a server keeps for a flow


def io_manager_key(address: Address) -> str:
    """Under which key the IO manager of a system is found."""
    return address.system


def kinds(address: Address) -> set[str]:
    end = sinks().get(address.system) or sources().get(address.system)
    return {(end.icon if end else "") or address.system}


def uri(address: Address) -> str:
    return f"{address.system}://{address.connection}/{qualified_name(address)}"


def qualified_name(address: Address) -> str:
    """The name inside its connection; in quotes where a dot is a part of it."""
    return join(address.namespace, address.name) if address.namespace else address.name


def place(address: Address) -> dict[str, Any]:
    return {
        "dagster/uri": uri(address),
        "dagster/table_name": qualified_name(address),
        "dagster/storage_kind": address.system,
    }


def flow_metadata(node: AssetNode) -> dict[str, Any]:
    """Returns what is known about a flow's asset before any run."""
    flow = node.flow
    return {
        **place(node.branch.address),
        **code_reference(flow.file, flow.line),
        "flow": flow.id,
        "source": uri(flow.source_address),
        **{
            name: dg.MetadataValue.md(text)
            for name, text in languages()[flow.language].describe(flow).items()
        },
        **_rejects(flow),
        **({"suspended": True} if flow.suspended else {}),
        **({"maintenance_window": str(flow.maintenance)} if flow.maintenance else {}),
    }


def _rejects(flow: Flow) -> dict[str, Any]:
    rejects = flow.policies.rejects
    sink = {"error_sink": uri(rejects.address)} if rejects.address else {}
    return {"rejected_records": f"They {rejects.fate}.", **sink}


def code_reference(file: Path, line: int) -> dict[str, Any]:
    with warnings.catch_warnings():
        # Beta, but the only way to say where an asset stands; not worth a line per asset and load.
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(
            file_path=str(file.absolute()), line_number=line, label=file.name
        )
        value = dg.CodeReferencesMetadataValue(code_references=[reference])
    return {"dagster/code_references": value}


def tags(flow: Flow) -> dict[str, str]:
    """Labels, as far as they make tags."""
    labels = {"dataflow/flow": flow.slug, **flow.labels}
    return {key: value for key, value in labels.items() if _is_tag(key, value)}


def description(node: AssetNode, graph: Graph) -> str:
    flow, address = node.flow, node.branch.address
    mode = "upserted" if node.branch.sink.traits.upserts else "appended"
    source = flow.source_address
    ends = (f"`{qualified_name(one)}` ({one.system})" for one in (source, address))
    lines = [f"{' -> '.join(ends)}, {mode}. Flow `{flow.id}`."]
    if flow.suspended:
        lines.append("**Suspended** in its manifest: no run will read until that is removed.")
    elif flow.maintenance:
        lines.append(f"It pauses in its maintenance window, {flow.maintenance}.")
    if node.source is None:
        lines.append(
            f"It also reads `{uri(flow.source_address)}`, which is made from this table: Dagster's "
            f"graph has no cycles, so that edge is not drawn. The flow itself is not affected."
        )
    if node.is_shared:
        others = ", ".join(f"`{n.flow.id}`" for n in graph.writers(node.table) if n is not node)
        lines.append(f"The same table is also written by {others}.")
    return "\n\n".join(lines)


def event_metadata(
    checkpoint: Checkpoint, figures: Figures, table_rows: int | None = None
) -> dict[str, Any]:
    """One checkpoint: the JSON value first, then the flat numbers; the table's total if known."""
    total = {} if table_rows is None else {ROW_COUNT: _number(table_rows)}
    return {
        CHECKPOINT: dg.MetadataValue.json(mirror.to_json(checkpoint)),
        **{name: _number(one) for name, one in asdict(figures).items() if one is not None},
        **total,
    }


def log_link(run_id: str, flow: Flow) -> dict[str, Any]:
    """Returns where the lines of one flow are in the log of a run that drives many.

    An address without a host, of the web server that shows the event.
    """
    text = quote(f"flow {flow.id}:", safe="")
    return {LOG: dg.MetadataValue.url(f"/runs/{run_id}?logs={text}")}


def column_schema(schema: pa.Schema) -> dg.TableSchema:
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=column.name,
                type=str(kind_of(column) or column.type),
                constraints=dg.TableColumnConstraints(nullable=column.nullable),
            )
            for column in schema
        ]
    )


def column_lineage(node: AssetNode, schema: pa.Schema) -> dict[str, Any]:
    """Which columns or fields of the source each column is made from, as far as steps tell.

    Not of what the database fills by itself where a record does not.
    """
    columns = [f.name for f in schema if not Note.HAS_DEFAULT.marks(f)]
    sources = origins(node.flow, node.branch, columns)
    if node.source is None or not sources:
        return {}
    source = dg.AssetKey(list(node.source))
    return {
        COLUMN_LINEAGE: dg.TableColumnLineage(
            {
                column: [dg.TableColumnDep(source, name) for name in sorted(names)]
                for column, names in sources.items()
            }
        )
    }


def check_specs(node: AssetNode) -> list[dg.AssetCheckSpec]:
    """The questions asked about every flow, and one about the log that a server keeps for it."""
    key = dg.AssetKey(node.key)
    late = f"The oldest unread record waits for at most {LAGGING_SECONDS:.0f} seconds."
    rejects = node.flow.policies.rejects
    again = " A replay stores them." if keeps(node.flow) else ""
    rejected = (
        f"No record was rejected in the last {QUIET_SECONDS / 60:.0f} minutes. Rejected ones "
        f"{rejects.fate}.{again}"
    )
    held = f"The source's server keeps at most {HELD_BYTES >> 20:,} MiB of log for the flow."
    kept = [dg.AssetCheckSpec(SLOT_CHECK, asset=key, description=held)]
    return [
        dg.AssetCheckSpec(LAG_CHECK, asset=key, description=late),
        dg.AssetCheckSpec(REJECTED_CHECK, asset=key, description=rejected),
        *(kept if isinstance(node.flow.source, KeepsLog) else ()),
    ]


def check_results(
    node: AssetNode, lag: Lag, checkpoint: Checkpoint, *, rejects: bool
) -> Iterator[dg.AssetCheckResult]:
    """The answers: all only warn, for the rows that could be stored are stored.

    `rejects`: a record was rejected in the last QUIET_SECONDS of the run.
    """
    key, rejected = dg.AssetKey(node.key), checkpoint.totals.rejected
    in_time, metadata = lag_check(lag.seconds)
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=LAG_CHECK,
        passed=in_time,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=metadata,
    )
    yield dg.AssetCheckResult(
        asset_key=key,
        check_name=REJECTED_CHECK,
        passed=not rejects,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"rejected_in_total": _number(rejected), **_rejects(node.flow)},
    )
    if isinstance(node.flow.source, KeepsLog):
        passed, metadata = slot_check(lag.held or 0)
        yield dg.AssetCheckResult(
            asset_key=key,
            check_name=SLOT_CHECK,
            passed=passed,
            severity=dg.AssetCheckSeverity.WARN,
            metadata=metadata,
        )


def lag_check(seconds: float | None) -> tuple[bool, dict[str, Any]]:
    """Returns whether the oldest unread record is known to be young enough, and how old it is."""
    if seconds is None:
        return False, {"lag_seconds": dg.MetadataValue.text(UNKNOWN_AGE)}
    return seconds <= LAGGING_SECONDS, {"lag_seconds": _number(round(seconds, 3))}


def slot_check(held: int) -> tuple[bool, dict[str, Any]]:
    """Returns whether the source's server keeps too much log for a flow, and how many bytes."""
    return held <= HELD_BYTES, {"held_bytes": _number(held)}


def lag_metadata(lag: Lag) -> dict[str, Any]:
    """An observed lag, under the names that events of runs use too."""
    log = {"lag_bytes": lag.bytes, "held_bytes": lag.held}
    age = {} if lag.seconds is None else {"lag_seconds": _number(round(lag.seconds, 3))}
    return {
        **age,
        "lag_records": _number(lag.records),
        **{name: _number(size) for name, size in log.items() if size is not None},
        **state_metadata(lag),
    }


def state_metadata(lag: Lag) -> dict[str, Any]:
    """Returns what is known of a query's state, or of a connector's; of other flows nothing is."""
    sizes = {"state_bytes": lag.state, "late_rows": lag.late}
    metadata = {name: _number(size) for name, size in sizes.items() if size is not None}
    if lag.watermark is not None:
        metadata["watermark"] = dg.MetadataValue.timestamp(lag.watermark / 1000)
    if lag.connector:
        metadata["connector"] = dg.MetadataValue.json(dict(lag.connector))
    return metadata


def language_metrics(flow: Flow, lag: Lag) -> dict[str, Any]:
    """The metrics of the tool that the flow's language is of: a list of values for each name."""
    values: dict[str, list[dict[str, Any]]] = {}
    for one in languages()[flow.language].lag_metrics(flow, lag):
        values.setdefault(one.name, []).append({**one.tags, "value": one.value})
    return {name: dg.MetadataValue.json(several) for name, several in values.items()}


def _number(value: float) -> dg.MetadataValue[Any]:
    return dg.MetadataValue.int(value) if isinstance(value, int) else dg.MetadataValue.float(value)


def _is_tag(key: str, value: str) -> bool:
    try:
        dg.AssetSpec("probe", tags={key: value})
    except dg.DagsterInvalidDefinitionError:
        return False
    return True
