"""The graph of flows -> Dagster's definitions: one asset per branch, topics and shared tables."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from dataflow_assets.assets.draining import Draining, FlowConfig
from dataflow_assets.assets.graph import AssetNode, ErrorTableNode, Graph, Key
from dataflow_assets.assets.lane_evictions import Evictions
from dataflow_assets.assets.lane_runs import wait_for_flow
from dataflow_assets.assets.metadata import (
    check_specs,
    code_reference,
    description,
    flow_metadata,
    io_manager_key,
    kinds,
    place,
    tags,
)
from dataflow_assets.assets.mirrored_checkpoints import outdated_keys
from dataflow_assets.assets.runs import Runs
from dataflow_assets.contracts import Address
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Flow, mangle
from dataflow_assets.languages.language import form_of

MANIFEST_CHECK = "manifest"

AnyAsset = dg.AssetsDefinition | dg.AssetSpec


def assets(graph: Graph) -> list[AnyAsset]:
    topics = [_external(key, address, graph) for key, address in graph.topics.items()]
    tables = [_shared_table(key, address, graph) for key, address in graph.tables.items()]
    errors = [_errors(key, table) for key, table in graph.errors.items()]
    return [*topics, *tables, *errors, *(_flow_asset(graph, flow) for flow in graph.flows)]


def op_name(flow: Flow) -> str:
    """The step of a flow in logs and run configuration."""
    return flow.slug


def _external(key: Key, address: Address, graph: Graph) -> dg.AssetSpec:
    """A topic or table that no flow writes, or a query."""
    made_of = graph.upstream.get(key, ())
    by = "read from the assets before it" if made_of else "written by others"
    return dg.AssetSpec(
        key=list(key),
        deps=[list(each) for each in made_of],
        description=f"`{address.name}`, {by}.",
        kinds=kinds(address),
        metadata=place(address),
        group_name=group(address),
    )


def _shared_table(key: Key, address: Address, graph: Graph) -> dg.AssetSpec:
    """A table that several flows write: an asset for each of them, and the table above."""
    writers = graph.writers(key)
    flows = ", ".join(f"`{node.flow.id}`" for node in writers)
    spec = dg.AssetSpec(
        key=list(key),
        deps=[list(node.key) for node in writers],
        description=f"`{address.name}`, written by the flows {flows}.",
        kinds=kinds(address),
        metadata=place(address),
        group_name=group(address),
    )
    return spec.with_io_manager_key(io_manager_key(address))


def _errors(key: Key, table: ErrorTableNode) -> dg.AssetSpec:
    """An error sink: written beside the flows' own tables, with no events of its own."""
    flows = ", ".join(f"`{flow.id}`" for flow in table.flows)
    spec = dg.AssetSpec(
        key=list(key),
        deps=[list(source) for source in table.sources],
        description=(
            f"Error sink `{table.address.name}`: the records that could not be stored, of {flows}."
        ),
        kinds=kinds(table.address),
        metadata=place(table.address),
        group_name=group(table.address),
    )
    return spec.with_io_manager_key(io_manager_key(table.address))


def group(address: Address) -> str:
    """Assets are grouped by system and connection."""
    return mangle(f"{address.system}_{address.connection}")


def _flow_asset(graph: Graph, flow: Flow) -> dg.AssetsDefinition:
    nodes = graph.of(flow)

    @dg.multi_asset(
        name=op_name(flow),
        outs={_out_name(node): _out(node, graph) for node in nodes},
        deps=sorted({dg.AssetKey(list(key)) for node in nodes for key in _sources(node, graph)}),
        check_specs=[spec for node in nodes for spec in check_specs(node)],
        required_resource_keys={"spark"},
        op_tags={"dataflow/flow": flow.id},
    )
    def run(context: dg.AssetExecutionContext, config: FlowConfig) -> Iterator[Any]:
        yield from _body(nodes, context, config)

    return run


def _sources(node: AssetNode, graph: Graph) -> Iterator[Key]:
    if node.source:
        yield node.source
    yield from node.also
    yield from graph.upstream.get(node.key, ())


def _out_name(node: AssetNode) -> str:
    return "__".join(node.key)


def _out(node: AssetNode, graph: Graph) -> dg.AssetOut:
    return dg.AssetOut(
        key=list(node.key),
        description=description(node, graph),
        kinds={*kinds(node.branch.address), "spark"},
        owners=_owners(node.flow),
        metadata=flow_metadata(node),
        tags=tags(node.flow),
        group_name=group(node.branch.address),
        io_manager_key=io_manager_key(node.branch.address),
        code_version=node.flow.version or None,
        is_required=False,
    )


def _owners(flow: Flow) -> list[str]:
    """Dagster takes addresses and `team:name`; a plain name is a team's."""
    return [o if "@" in o or o.startswith("team:") else f"team:{o}" for o in flow.owners]


def _body(
    nodes: Sequence[AssetNode], context: dg.AssetExecutionContext, config: FlowConfig
) -> Iterator[Any]:
    """One run of one flow: hands the lazy drain to the IO managers, then answers the checks."""
    flow, runs = nodes[0].flow, Runs(context.instance, nodes[0].flow)
    if pause := flow.pause_reason():
        yield from _skip(nodes, context, f"flow {flow.id} is {pause}: nothing is read or written")
        return
    with runs.driving(context.run.run_id):
        if other := runs.other(context.run.run_id):
            why = f"flow {flow.id} is being driven by another run already: /runs/{other.run_id}"
            yield from _skip(nodes, context, why)
        else:
            if lane := wait_for_flow(context.instance, flow):
                context.log.info("flow %s: lane %s let it go: /runs/%s", flow.id, flow.lane, lane)
            yield from _drive(nodes, context, config)
            Evictions(context.instance).come_back(flow)


def _drive(
    nodes: Sequence[AssetNode], context: dg.AssetExecutionContext, config: FlowConfig
) -> Iterator[Any]:
    draining = Draining(nodes, context.resources.spark.flow_session, context, config)
    if draining.begin() or _needs_event(nodes, context, draining):
        for node in nodes:
            yield dg.Output(draining, output_name=_out_name(node))
    else:
        context.log.info("flow %s: nothing new since the last checkpoint", nodes[0].flow.id)
    yield from draining.checks()


def _needs_event(
    nodes: Sequence[AssetNode], context: dg.AssetExecutionContext, draining: Draining
) -> bool:
    """Returns whether an event is due although nothing is new.

    Assets of the same run wait for it, or a mirror does not show the sink's checkpoint.
    """
    own = {dg.AssetKey(node.key) for node in nodes}
    if set(context.run.asset_selection or ()) - own:
        return True
    return bool(outdated_keys(context.instance, draining.checkpoints()))


def _skip(
    nodes: Sequence[AssetNode], context: dg.AssetExecutionContext, reason: str
) -> Iterator[dg.AssetCheckResult]:
    """Declared checks must be answered, even by a run that has nothing to do."""
    context.log.info(reason)
    for node in nodes:
        for spec in check_specs(node):
            yield dg.AssetCheckResult(
                asset_key=spec.asset_key,
                check_name=spec.name,
                passed=True,
                metadata={"not_checked": reason},
            )


def broken_files(findings: Iterable[Finding]) -> list[AnyAsset | dg.AssetChecksDefinition]:
    """An asset with a failing check for each file that something is wrong with."""
    assets: list[AnyAsset | dg.AssetChecksDefinition] = []
    for file, its in by_file(findings).items():
        assets += _broken_file(file, its)
    return assets


def by_file(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    by_path: dict[str, list[Finding]] = {}
    for finding in sorted(findings):
        by_path.setdefault(finding.file, []).append(finding)
    return by_path


def broken_key(file: str) -> dg.AssetKey:
    return dg.AssetKey(["broken", mangle(file)])


def _broken_file(file: str, findings: list[Finding]) -> list[AnyAsset | dg.AssetChecksDefinition]:
    key = broken_key(file)
    text = "\n".join(f"- {finding}" for finding in findings)
    spec = dg.AssetSpec(
        key,
        description=f"`{file}` cannot be used. The other flows are not affected.\n\n{text}",
        kinds={"python" if file.endswith(".py") else form_of(file)[1:]},
        metadata=code_reference(Path(file), findings[0].line),
        group_name="broken",
    )

    @dg.asset_check(asset=key, name=MANIFEST_CHECK, description="The file can be used.")
    def check() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False, metadata=findings_metadata(findings))

    return [spec, check]


def findings_metadata(findings: Sequence[Finding]) -> dict[str, Any]:
    lines = "\n".join(f"- {finding}" for finding in findings)
    return {"findings": dg.MetadataValue.md(lines)}
