"""WarpStream Tableflow's file: clusters, topics and a bucket -> one flow for each table.

A table with a mistake of its own, or of its cluster, is left out; the others are flows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as File

from dataflow_assets.contracts import Rejects
from dataflow_assets.errors import Finding
from dataflow_assets.flow import Branch, Flow, Policies
from dataflow_assets.languages.common.documents import Document, Part, Path
from dataflow_assets.languages.common.keys import suggest
from dataflow_assets.languages.common.reading import DeclaredTables, Reading
from dataflow_assets.languages.common.wording import validate
from dataflow_assets.languages.tableflow import ends, model, rules, types
from dataflow_assets.languages.tableflow.catalogs import TableflowCatalog
from dataflow_assets.languages.tableflow.places import Bucket, TableflowPlaced
from dataflow_assets.spec import hints

_KEYS = ("source_clusters", "destination_bucket_url", "tables")
_SOURCE: Path = ("spec", "source", "config")
_SINK: Path = ("spec", "sink", "config")
_OF_PARTS = ("source_clusters[", "tables[")
"""How the paths of findings begin that concern one cluster or table; others concern all."""


@dataclass(frozen=True)
class _Clusters:
    """The clusters of a file: all names, and the sound ones with their places."""

    names: tuple[str, ...]
    sound: Mapping[str, tuple[int, model.SourceCluster]]
    registries: frozenset[str]
    """Names of those with a schema registry, with a mistake or without."""


def reads(document: Document) -> bool:
    """Tells whether a document is of this language: by two of its keys, and none of Kubernetes'."""
    kubernetes = document.get("apiVersion") or document.get("kind")
    keys = [key for key in _KEYS if document.get(key) is not None]
    return len(keys) > 1 and not kubernetes


def read(document: Document, catalog: TableflowCatalog | None = None) -> list[Reading]:
    """A reading for each table, and one of what is wrong anywhere in the file.

    `catalog`: the location's, in which the tables are; None where it has none.
    """
    _, findings = validate(model.Tableflow, document)
    findings += _of_catalog(document, catalog)
    clusters = _clusters(document, findings)
    tables = [_table(document, index, clusters, findings) for index in _indexes(document, "tables")]
    readings = [Reading(document, tuple(findings))] if findings else []
    if not document.sound or any(not one.path.startswith(_OF_PARTS) for one in findings):
        return readings
    place = TableflowPlaced(Bucket.parse(document.get("destination_bucket_url")), catalog)
    readings.append(Reading(document, tables=_declared_tables(document, place)))
    for index, table in enumerate(tables):
        if table is not None and table.source_cluster_name in clusters.sound:
            readings.append(_reading(document, index, table, clusters, place))
    return readings


def _of_catalog(document: Document, catalog: TableflowCatalog | None) -> list[Finding]:
    url = document.get("destination_bucket_url")
    if catalog is None or not isinstance(url, str) or not url.startswith("file:"):
        return []
    message = (
        "must be s3://bucket: the tables are in the catalog of connections.yaml, whose readers "
        "see no disk of this machine"
    )
    return [document.finding(("destination_bucket_url",), message)]


def _declared_tables(document: Document, place: TableflowPlaced) -> DeclaredTables:
    """All tables of the file, also those with a mistake."""
    names = {
        f"{document.get('tables', at, 'source_cluster_name')}+"
        f"{document.get('tables', at, 'source_topic')}"
        for at in _indexes(document, "tables")
    }
    return DeclaredTables(place.sink({"table": "-"}), frozenset(names))


def _indexes(document: Document, key: str) -> range:
    listed = document.get(key)
    return range(len(listed) if isinstance(listed, list) else 0)


def _clusters(document: Document, findings: list[Finding]) -> _Clusters:
    names: dict[str, int] = {}
    sound: dict[str, tuple[int, model.SourceCluster]] = {}
    for index in _indexes(document, "source_clusters"):
        at: Path = ("source_clusters", index)
        name = document.get(*at, "name")
        wrong = list(rules.of_cluster(document, at, names))
        wrong += rules.of_registry(document, (*at, "schema_registry"))
        cluster, problems = validate(model.SourceCluster, document, at)
        findings += wrong
        if isinstance(name, str):
            names.setdefault(name, index)
        if cluster is not None and not (wrong or problems):
            sound[cluster.name] = index, cluster
    having = {
        name
        for name, index in names.items()
        if document.get("source_clusters", index, "schema_registry")
    }
    return _Clusters(tuple(names), sound, frozenset(having))


def _table(
    document: Document, index: int, clusters: _Clusters, findings: list[Finding]
) -> model.TableflowTable | None:
    at: Path = ("tables", index)
    table, problems = validate(model.TableflowTable, document, at)
    if table is None or problems:
        return None
    wrong = [
        *rules.of_mode(document, at, table, clusters.registries),
        *rules.of_schema(document, at, table),
        *rules.of_layout(document, at, table),
    ]
    if table.source_cluster_name not in clusters.names:
        message = (
            f"is no cluster of this file; {suggest(table.source_cluster_name, clusters.names)}"
        )
        wrong.append(document.finding((*at, "source_cluster_name"), message))
    findings += wrong
    return None if wrong else table


def _reading(
    document: Document,
    index: int,
    table: model.TableflowTable,
    clusters: _Clusters,
    place: TableflowPlaced,
) -> Reading:
    number, cluster = clusters.sound[table.source_cluster_name]
    at: Path = ("tables", index)
    part = Part.of(document, at, _places(at, ("source_clusters", number), table))
    source, sink = ends.source(cluster, table), ends.sink(cluster, table, place)
    notes = [
        part.finding((*base, *path.split(".")), instead, key=True)
        for base, spec in ((_SOURCE, source), (_SINK, sink))
        for path, instead in hints(spec)
    ]
    notes += rules.alike(document, at, table)
    content = [document.get(*at), document.get("source_clusters", number), place.bucket.url]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    flow = Flow(
        namespace="default",
        name=sink.table,
        source=source,
        branches=(Branch(sink),),
        policies=Policies(rejects=Rejects("fail" if table.dlq_mode == "stop" else "table")),
        file=File(document.file),
        line=document.places[at].line,
        hash=hashlib.sha256(text.encode()).hexdigest(),
        language="tableflow",
    )
    return Reading(part, (), tuple(notes), flow)


def _places(table: Path, cluster: Path, declared: model.TableflowTable) -> dict[Path, Path]:
    credentials = (*cluster, "credentials")
    tls, sasl = (*_SOURCE, "tls"), (*_SOURCE, "sasl")
    fields = types.walk(declared.fields, (*table, "schema"))
    columns = ("schema", "fields") if declared.schema_ else ("schema_mode",)
    registry = (*cluster, "schema_registry")
    auth = "basicAuth"
    return {
        ("metadata", "name"): (*table, "source_topic"),
        _SOURCE: (*table, "source_topic"),
        (*_SOURCE, "brokers"): (*cluster, "bootstrap_brokers"),
        tls: (*credentials, "use_tls"),
        (*tls, "insecureSkipVerify"): (*credentials, "tls_insecure_skip_verify"),
        (*tls, "caSecretRef"): (*credentials, "mtls_server_ca_cert_env"),
        (*tls, "certSecretRef"): (*credentials, "mtls_client_cert_env"),
        (*tls, "keySecretRef"): (*credentials, "mtls_client_key_env"),
        (*_SOURCE, "schemaRegistry"): registry,
        (*_SOURCE, "schemaRegistry", "url"): (*registry, "url"),
        (*_SOURCE, "schemaRegistry", auth, "usernameSecretRef"): (*registry, "username_env"),
        (*_SOURCE, "schemaRegistry", auth, "passwordSecretRef"): (*registry, "password_env"),
        (*_SOURCE, "schemaRegistry", "bearerTokenSecretRef"): (*registry, "bearer_token_env"),
        (*_SINK, "schemaRegistry"): registry,
        sasl: (*credentials, "sasl_username_env"),
        (*sasl, "usernameSecretRef"): (*credentials, "sasl_username_env"),
        (*sasl, "passwordSecretRef"): (*credentials, "sasl_password_env"),
        _SINK: table,
        (*_SINK, "fields"): (*table, *columns),
        (*_SINK, "fields", "partitioning"): (
            *table,
            "partition_by" if declared.partition_by else "partitioning_scheme",
        ),
        (*_SINK, "fields", "key"): (*table, "upsert_key"),
        **{(*_SINK, "fields", str(one.id)): place for place, one, _ in fields},
    }
