"""Clients of ClickHouse: clickhouse-connect over HTTP, with time limits, without sessions."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from dataflow_assets.connectors.clickhouse import dsn
from dataflow_assets.connectors.clickhouse.errors import (
    ClickhouseFailure,
    ClickhouseTlsFailure,
    failing,
)
from dataflow_assets.sdk import handshake
from dataflow_assets.secrets.private_files import private_file
from dataflow_assets.secrets.tls import warn_unchecked

if TYPE_CHECKING:
    from clickhouse_connect.driver import client as driver

Client: TypeAlias = "driver.Client"  # imported when the first one connects: loading stays fast

log = logging.getLogger(__name__)

_OPTIONS = handshake.Options(
    "tls.caFile, or ca_cert", "tls.certFile, or client_cert", "its key", "the connection string"
)


def connect(text: str, name: str) -> Client:
    """A client of the first host that answers; `name` shows in the server's query log.

    Raises Failure. The caller closes it.
    """
    parsed = dsn.parse(text)
    _tell(parsed.note)
    for number, (host, port) in enumerate(parsed.hosts, 1):
        try:
            return _client(parsed, host, port, name)
        except ClickhouseFailure as failure:
            if trouble := _of_tls(parsed, host, port, failure):
                raise ClickhouseTlsFailure(f"no connection to {host}:{port}: {trouble}") from None
            if failure.is_answer or number == len(parsed.hosts):
                where = "" if failure.is_answer else f"no connection to {host}:{port}: "
                message = dsn.scrub(where + failure.message, text)
                raise ClickhouseFailure(message, failure.code, failure.status) from None
    raise AssertionError  # there is at least one host


def _of_tls(parsed: dsn.Dsn, host: str, port: int, failure: ClickhouseFailure) -> str:
    if failure.is_answer or failure.status is not None or not parsed.secure:
        return ""
    return handshake.trouble(dsn.material(parsed), (host, port), _OPTIONS)


def _client(parsed: dsn.Dsn, host: str, port: int, name: str) -> Client:
    import clickhouse_connect
    import urllib3
    from urllib3.exceptions import InsecureRequestWarning

    certs = dsn.material(parsed)
    if parsed.secure and not parsed.verify:
        warn_unchecked(f"clickhouse {host}:{port}")
        urllib3.disable_warnings(InsecureRequestWarning)  # it would warn at each request
    with failing():
        client = clickhouse_connect.get_client(
            host=host,
            port=port,
            interface="https" if parsed.secure else "http",
            username=parsed.user,
            password=parsed.password,
            database=parsed.database,
            settings=dict(parsed.settings),
            connect_timeout=parsed.connect_seconds,
            send_receive_timeout=parsed.answer_seconds,
            verify=parsed.verify,
            ca_cert=private_file(certs.ca) if certs.ca else None,
            client_cert=private_file(certs.cert) if certs.cert else None,
            client_cert_key=private_file(certs.key) if certs.key else None,
            # With a password the certificate is for the connection, else for the user as well.
            tls_mode="strict" if certs.cert and parsed.password else None,
            compress=parsed.compress,
            proxy_path=parsed.path,
            client_name=name,
            autogenerate_session_id=False,  # statements of one client may overlap
            dedicated_pool=True,  # tasks are forked: none shares a connection with its parent
            query_retries=0,  # what is worth it is tried again with backoff, by the run
        )
    _insert_at_once(client)
    return client


def _insert_at_once(client: Client) -> None:
    """Newer servers collect the inserts of many clients: another deduplication than by token.

    A user who may change no setting may still read.
    """
    from clickhouse_connect.driver.exceptions import ProgrammingError

    with suppress(ProgrammingError):
        client.set_client_setting("async_insert", 0)


def query_rows(
    client: Client, query: str, parameters: Mapping[str, Any] | None = None
) -> list[Any]:
    """The rows of a small answer as tuples. Raises Failure."""
    with failing():
        return list(client.query(query, parameters=dict(parameters or {})).result_rows)


@contextmanager
def stream(
    client: Client,
    query: str,
    parameters: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Iterator[pa.RecordBatch]]:
    """The rows of any answer as Arrow batches, one after another. Raises Failure.

    They end only when the whole answer has come: a server that fails on the way cuts it off.
    """
    with failing():
        answer: Any = client.raw_stream(
            query,
            parameters=dict(parameters or {}),
            settings=dict(settings or {}),
            fmt="ArrowStream",
        )
        answer.auto_close = False  # else nothing is left to ask for the end
        try:
            yield _batches(answer)
        finally:
            answer.close()


def _batches(answer: Any) -> Iterator[pa.RecordBatch]:
    """Arrow's own end proves nothing: the end of the HTTP answer does."""
    with failing():
        yield from pa.ipc.open_stream(answer)
        while answer.read(1 << 16):
            pass


def insert(
    client: Client, place: str, rows: pa.Table, settings: Mapping[str, Any] | None = None
) -> None:
    """Rows under one INSERT into a quoted table.

    The client's own `insert_arrow` takes a name with quotes around it for another name.
    """
    from clickhouse_connect.driver.query import arrow_buffer

    used = client.write_compression
    names, block = arrow_buffer(rows, used if used in {"zstd", "lz4"} else None)
    quoted = [quote(name) for name in names]
    client.raw_insert(place, quoted, block, dict(settings or {}), "Arrow")


def inserting(token: str, *, replicated: bool = False) -> dict[str, Any]:
    """Settings of an INSERT that stands once under its token, as one block, when it returns."""
    quorum = {"insert_quorum": "auto"} if replicated else {}
    return {
        "insert_deduplication_token": token,
        "insert_deduplicate": 1,
        "deduplicate_insert": "enable",  # what newer servers ask instead
        "async_insert": 0,
        "wait_end_of_query": 1,
        "deduplicate_blocks_in_dependent_materialized_views": 1,
        "min_insert_block_size_rows": 1 << 40,
        "min_insert_block_size_bytes": 1 << 50,
        "max_insert_block_size": 1 << 40,
        "use_strict_insert_block_limits": 0,
        "max_partitions_per_insert_block": 0,
        **quorum,
    }


def known_settings(client: Client, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those that the server has: versions differ."""
    ours = {"wait_end_of_query"}  # of the HTTP interface
    return {k: v for k, v in settings.items() if k in ours or k in client.server_settings}


def insert_rows(
    client: Client, table: str, rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> None:
    """Rows as JSON, whose columns are the keys of the first; a quoted table. Raises Failure."""
    if not rows:
        return
    body = "\n".join(json.dumps(row) for row in rows).encode()
    with failing():
        client.raw_insert(
            table,
            column_names=list(rows[0]),
            insert_block=body,
            settings=known_settings(client, settings),
            fmt="JSONEachRow",
        )


def quote(*names: str) -> str:
    """Identifiers as SQL takes them, joined by dots."""
    return ".".join(f"`{_escape(name, '`')}`" for name in names)


def literal(text: str) -> str:
    return f"'{_escape(text, chr(39))}'"


def name_list(names: Sequence[str]) -> str:
    return ", ".join(quote(name) for name in names)


def _escape(text: str, mark: str) -> str:
    return text.replace("\\", "\\\\").replace(mark, f"\\{mark}")


@cache
def _tell(note: str) -> None:
    """Once in a process: a native address is no error, but the port that is used is another."""
    if note:
        log.info("%s", note)
