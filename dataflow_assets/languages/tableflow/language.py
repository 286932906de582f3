"""Tableflow among the languages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import ClassVar

from typing_extensions import override

from dataflow_assets.contracts import Lag
from dataflow_assets.flow import Flow
from dataflow_assets.languages.common.documents import Document, NodePlace
from dataflow_assets.languages.common.json_schema import DocumentSchema
from dataflow_assets.languages.common.reading import Reading
from dataflow_assets.languages.language import LagMetric, Language, Neighbours, Parsed
from dataflow_assets.languages.tableflow import catalogs, reference
from dataflow_assets.languages.tableflow import document as tableflow

PARTITION_LAG = "warpstream_tableflow_partition_time_lag_seconds"
UNTAGGED = "WARPSTREAM_DISABLE_CONSUMER_GROUP_METRICS_TAGS"
"""The variable that lists the tags to leave out: `partition` gives one value for each table."""
_HELP = (
    "Age in seconds of the oldest record that is not in the table; 0 where all are. The tag "
    f"partition is left out with {UNTAGGED}=partition."
)


class TableflowLanguage(Language):
    """A file declares tables; they are in the location's catalog, if it has one."""

    name: ClassVar[str] = "tableflow"
    title: ClassVar[str] = "Tableflow"
    suffixes: ClassVar[frozenset[str]] = frozenset({".yaml"})
    connectors: ClassVar[tuple[str, ...]] = ("kafka", "iceberg")
    connection_keys: ClassVar[frozenset[str]] = frozenset({catalogs.KEY})

    @override
    def claims(self, document: Document) -> NodePlace | None:
        return document.places[()] if tableflow.reads(document) else None

    @override
    def parse(self, document: Document) -> Parsed:
        return Parsed(document, tuple(tableflow.read(document)))

    @override
    def parse_connections(self, document: Document) -> Parsed:
        catalog, findings = catalogs.read(document)
        has_catalogs = document.get(catalogs.KEY) is not None
        return Parsed(document, (catalog,) if has_catalogs else (), tuple(findings))

    @override
    def flows(self, parsed: Parsed, beside: Neighbours) -> Iterable[Reading]:
        several = [one for shared in beside.connections for one in shared.content]
        unique = [one for at, one in enumerate(several) if one not in several[:at]]
        if wrong := catalogs.unusable(unique):
            return [Reading(parsed.document, (parsed.document.finding((), wrong),))]
        if not unique:
            return list(parsed.content)
        return tableflow.read(parsed.document, unique[0])

    @override
    def lag_metrics(self, flow: Flow, lag: Lag) -> Iterable[LagMetric]:
        return partition_lags(flow, lag)

    @override
    def document_schema(self) -> DocumentSchema:
        return reference.document_schema()

    @override
    def reference(self) -> str:
        return reference.render()


def partition_lags(flow: Flow, lag: Lag) -> Iterator[LagMetric]:
    """The lag of each partition; with the tag `partition` switched off the largest of them."""
    if not lag.partitions:
        return
    tags = {
        "table.id": flow.slug,
        "table.name": flow.branches[0].address.name,
        "topic": flow.source_address.name,
    }
    by = {name: round(seconds, 3) for name, seconds in lag.partitions.items()}
    if "partition" in os.environ.get(UNTAGGED, "").split(","):
        if lag.seconds is not None:
            yield LagMetric(PARTITION_LAG, _HELP, tags, round(lag.seconds, 3))
        return
    for name, seconds in by.items():
        yield LagMetric(PARTITION_LAG, _HELP, {**tags, "partition": name}, seconds)
