"""The two ends of a table in Tableflow's file: its topic as a source, its table as a sink."""

from __future__ import annotations

from typing import Any

from dataflow_assets.connectors.iceberg.options import RECORD_TIME
from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.kafka.connection import Sasl
from dataflow_assets.formats.schema_registry import RegistryAuth, SchemaRegistry
from dataflow_assets.languages.tableflow import model, types
from dataflow_assets.languages.tableflow.declared_sinks import DeclaredSink
from dataflow_assets.languages.tableflow.places import TableflowPlaced
from dataflow_assets.secrets import VariableRef
from dataflow_assets.secrets.tls import Tls

GROUP = "tableflow"
PREFIX = "TABLEFLOW_"
_MECHANISMS = {"plain": "plain", "scram-256": "scram-sha-256", "scram-512": "scram-sha-512"}


def source(cluster: model.SourceCluster, table: model.TableflowTable) -> KafkaSource:
    credentials = cluster.credentials or model.Credentials()
    options: dict[str, Any] = {"tombstones": "delete"} if table.upsert_key else {}
    if table.schema_mode == "registry" and table.source_format == "json":
        options["json_head"] = "ignored"
    elif table.schema_mode == "registry":
        options |= {"format": "avro", "schema_registry": _registry(cluster)}
    elif table.source_format == "avro":
        schema = types.avro(table.fields)
        options |= {"format": "avro", "avro_head": "ignored", "avro_schema": schema}
    if credentials.use_tls:
        options["tls"] = _tls(credentials)
    if credentials.sasl_username_env and credentials.sasl_password_env:
        options["sasl"] = Sasl(
            mechanism=_MECHANISMS[credentials.sasl_mechanism],  # type: ignore[arg-type]
            username_secret_ref=_variable(credentials.sasl_username_env),
            password_secret_ref=_variable(credentials.sasl_password_env),
        )
    return KafkaSource(
        brokers=tuple(f"{one.hostname}:{one.port}" for one in cluster.bootstrap_brokers),
        topic=table.source_topic,
        consumer_group=GROUP,
        starting_offsets="earliest",
        **options,
    )


def sink(
    cluster: model.SourceCluster, table: model.TableflowTable, place: TableflowPlaced
) -> DeclaredSink:
    upserts = {"upsert_mode": True, "conflict_key": table.upsert_key} if table.upsert_key else {}
    return place.sink(
        {
            "table": f"{table.source_cluster_name}+{table.source_topic}",
            **_columns(cluster, table),
            "time_column": RECORD_TIME if table.keeps_time else None,
            "partitions": table.partitions,
            "retention": model.duration(table.retention) if table.retention else None,
            **upserts,
            "auto_create_table": True,
        }
    )


def _registry(cluster: model.SourceCluster) -> SchemaRegistry | None:
    declared = cluster.schema_registry
    if declared is None:
        return None
    refs = {
        "username_secret_ref": declared.username_env,
        "password_secret_ref": declared.password_env,
    }
    auth: dict[str, Any] = {key: _variable(name) for key, name in refs.items() if name}
    options: dict[str, Any] = {"basic_auth": RegistryAuth(**auth)} if auth else {}
    if declared.bearer_token_env:
        options["bearer_token_secret_ref"] = _variable(declared.bearer_token_env)
    if declared.url.startswith("https:"):
        options["tls"] = _tls(declared)
    return SchemaRegistry(url=declared.url, **options)


def _tls(credentials: model.Credentials | model.Registry) -> Tls:
    options: dict[str, Any] = {}
    if credentials.tls_insecure_skip_verify:
        options["insecure_skip_verify"] = True
    refs = {
        "ca_secret_ref": credentials.mtls_server_ca_cert_env,
        "cert_secret_ref": credentials.mtls_client_cert_env,
        "key_secret_ref": credentials.mtls_client_key_env,
    }
    options |= {key: _variable(name) for key, name in refs.items() if name}
    return Tls(**options)


def _variable(name: str) -> VariableRef:
    """With the prefix, and as it is written: the language's own text shows both."""
    return VariableRef.of(f"{PREFIX}{name}", name)


def _columns(cluster: model.SourceCluster, table: model.TableflowTable) -> dict[str, Any]:
    if table.schema_mode == "registry":
        kind = "JSON" if table.source_format == "json" else "AVRO"
        where = {"subject": table.subject, "subject_kind": kind}
        return {"schema_registry": _registry(cluster), **where}
    schema = types.iceberg(table.fields, table.upsert_key, record_time=table.keeps_time)
    return {"table_schema": schema, "unknown_fields": "ignore"}
