"""ClickHouse's HTTP interface before chdb's engine, as clickhouse-connect and curl speak it.

`/ping`; a query in the URL, the body or both; settings and `param_*` in the URL; Basic
authentication, X-ClickHouse-User and -Key, or `user` and `password` in the URL; chunked and
compressed bodies both ways; inserts in every format. Sessions (`session_id`) keep nothing.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import signal
import sys
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import lz4.frame
import zstandard
from typing_extensions import override

from devservers.clickhouse_engine import PIECE, Engine, EngineError, Query

AUTHENTICATION_FAILED = 516
HEAD = 1 << 18  # within it an INSERT's own text ends
QUOTED = r"(?:`(?:[^`\\]|\\.|``)*`|\"(?:[^\"\\]|\\.|\"\")*\")"
IDENTIFIER = rf"(?:{QUOTED}|\w+)"
INSERT = re.compile(
    rf"\s*INSERT\s+INTO\s+(?P<into>(?:TABLE\s+)?{IDENTIFIER}(?:\.{IDENTIFIER})?\s*"
    rf"(?:\((?:{QUOTED}|[^)`\"])*\))?)\s*(?P<settings>SETTINGS\s.*?)?\s*"
    r"\bFORMAT\s+(?P<format>\w+)[ \t]*(?:\r?\n)?".encode(),
    re.IGNORECASE | re.DOTALL,
)
# Of the interface, not of the engine: reference "HTTP Interface" of ClickHouse's documentation.
RESERVED = {
    *("query", "database", "default_format", "query_id", "user", "password", "quota_key", "role"),
    *("session_id", "session_timeout", "session_check", "close_session", "buffer_size"),
    *("wait_end_of_query", "client_protocol_version", "compress", "decompress", "stacktrace"),
    *("send_progress_in_http_headers", "http_headers_progress_interval_ms"),
    *("enable_http_compression", "cancel_http_readonly_queries_on_client_close"),
}


@dataclass(frozen=True)
class Account:
    """The one user there is."""

    user: str
    password: str

    def admits(self, user: str, password: str) -> bool:
        """Whether these are its name and password."""
        given, own = f"{user}\0{password}", f"{self.user}\0{self.password}"
        return hmac.compare_digest(given.encode(), own.encode())


class Front(ThreadingHTTPServer):
    """One thread per connection."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, engine: Engine, account: Account, port: int, database: str) -> None:
        self.engine, self.account, self.database = engine, account, database
        super().__init__(("127.0.0.1", port), Handler)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is none of the log's concern."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection, request after request."""

    server: Front
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing per request: an URL may hold a password."""

    def do_GET(self) -> None:
        """The interface makes no difference between methods, nor do we."""
        self._parameters = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = self._body()
        try:
            self._answer(body)
        except EngineError as error:
            self._refuse(error)
        finally:
            for _ in body:  # what nobody read must not be taken for the next request
                pass

    do_POST = do_GET  # noqa: N815 (the name that http.server looks for)

    def _answer(self, body: Iterator[bytes]) -> None:
        path = urlsplit(self.path).path
        if path in {"/ping", "/replicas_status"}:
            self._send([b"Ok.\n"], {})
            return
        if not self.server.account.admits(*self._credentials()):
            name = self._credentials()[0]
            raise EngineError(
                f"Code: {AUTHENTICATION_FAILED}. DB::Exception: {name}: Authentication failed: "
                "password is incorrect, or there is no user with such name. (AUTHENTICATION_FAILED)"
            )
        head, rest = self._head(body)
        if insert := INSERT.match(head):
            self._insert(insert, chain([head[insert.end() :]], rest))
        else:
            self._select((head + b"".join(rest)).decode())

    def _head(self, body: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
        """The query of the URL and the first part of the body, and the rest of the body."""
        kind = self.headers.get("Content-Type", "")
        if kind.startswith("multipart/form-data"):
            fields = _form(kind, b"".join(body))
            self._parameters |= fields
            return self._parameters.get("query", "").encode(), iter(())
        head = self._parameters.get("query", "").encode()
        head += b"\n" if head else b""
        for piece in body:
            head += piece
            if len(head) >= HEAD:
                break
        return head, body

    def _insert(self, insert: re.Match[bytes], data: Iterator[bytes]) -> None:
        """Only what has come whole is inserted: a body that ends early leaves nothing."""
        query = self._query("", insert["format"].decode())
        settings = (insert["settings"] or b"").decode()
        with tempfile.NamedTemporaryFile(prefix="dataflow-insert-") as file:
            file.writelines(data)
            file.flush()
            into = insert["into"].decode()
            written = self.server.engine.insert(query, into, settings, Path(file.name))
        self._send([], {"X-ClickHouse-Summary": f'{{"written_rows":"{written}"}}'})

    def _select(self, text: str) -> None:
        default = self._parameters.get("default_format") or self.headers.get("X-ClickHouse-Format")
        query = self._query(text, default or "TabSeparated")
        output = self.server.engine.run(query)
        if self._parameters.get("wait_end_of_query") == "1":
            output = iter([b"".join(output)])
        first = next(output, b"")  # an error before the first row still has a status of its own
        self._send(chain([first], output), {"X-ClickHouse-Format": query.output_format})

    def _query(self, text: str, named_format: str) -> Query:
        given = self._parameters
        database = given.get("database") or self.headers.get("X-ClickHouse-Database")
        return Query(
            text,
            database or self.server.database,
            {n: v for n, v in given.items() if n not in RESERVED and not n.startswith("param_")},
            {n.removeprefix("param_"): v for n, v in given.items() if n.startswith("param_")},
            named_format,
        )

    def _credentials(self) -> tuple[str, str]:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            user, _, password = base64.b64decode(token).decode().partition(":")
            return user, password
        user = self.headers.get("X-ClickHouse-User") or self._parameters.get("user", "default")
        key = self.headers.get("X-ClickHouse-Key") or self._parameters.get("password", "")
        return user, key

    def _send(self, pieces: Iterable[bytes], headers: Mapping[str, str]) -> None:
        coding = self._coding()
        identity = self._parameters.get("query_id") or str(uuid.uuid4())
        self.send_response(200)
        for name, value in {**self._always, **headers, "X-ClickHouse-Query-Id": identity}.items():
            self.send_header(name, value)
        if coding:
            self.send_header("Content-Encoding", coding)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for piece in _encoded(pieces, coding):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:  # the reader went away
            self.close_connection = True
        except EngineError as error:  # too late for a status: the answer is cut off
            print(error, file=sys.stderr, flush=True)  # noqa: T201 (the server's log)
            self.close_connection = True

    @cached_property
    def _always(self) -> dict[str, str]:
        return {
            "Content-Type": "text/plain; charset=UTF-8",
            "X-ClickHouse-Timezone": self.server.engine.timezone,
            "X-ClickHouse-Server-Display-Name": "chdb",
        }

    def _refuse(self, error: EngineError) -> None:
        text = f"{error}\n".encode()
        self.send_response(403 if error.code == AUTHENTICATION_FAILED else 500)
        self.send_header("X-ClickHouse-Exception-Code", str(error.code))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _coding(self) -> str:
        """How the answer is compressed; not at all unless asked for twice, as on a real server."""
        if self._parameters.get("enable_http_compression") != "1":
            return ""
        accepted = {each.strip() for each in self.headers.get("Accept-Encoding", "").split(",")}
        return next((each for each in ("lz4", "zstd", "gzip") if each in accepted), "")

    def _body(self) -> Iterator[bytes]:
        """The request's body, decompressed."""
        coding = self.headers.get("Content-Encoding", "")
        pieces = self._chunks() if "Transfer-Encoding" in self.headers else self._measured()
        if coding in {"", "identity"}:
            yield from pieces
            return
        decoder = _decoder(coding)
        for piece in pieces:
            yield decoder.decompress(piece)

    def _measured(self) -> Iterator[bytes]:
        left = int(self.headers.get("Content-Length", "0"))
        while left:
            piece = self.rfile.read(min(left, PIECE))
            if not piece:
                raise ConnectionError("the request's body ends early")
            left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while True:
            line = self.rfile.readline(64)
            if not line.endswith(b"\n"):
                raise ConnectionError("the request's body ends early")
            size = int(line.partition(b";")[0], 16)
            piece = self.rfile.read(size)
            if len(piece) != size:
                raise ConnectionError("the request's body ends early")
            self.rfile.readline(3)
            if not size:
                return
            yield piece


def _form(kind: str, body: bytes) -> dict[str, str]:
    """The fields of a form: long parameters come as one."""
    header = f"Content-Type: {kind}\r\n\r\n".encode()
    fields = {}
    for part in BytesParser(policy=HTTP).parsebytes(header + body).iter_parts():
        value: Any = part.get_payload(decode=True)  # bytes: a field has no parts of its own
        fields[str(part.get_param("name", header="content-disposition"))] = value.decode()
    return fields


def _decoder(coding: str) -> Any:
    match coding:
        case "gzip" | "deflate":
            return zlib.decompressobj(47)  # tells the two apart
        case "zstd":
            return zstandard.ZstdDecompressor().decompressobj()
        case "lz4":
            return lz4.frame.LZ4FrameDecompressor()
        case _:
            raise EngineError(f"Code: 48. DB::Exception: no Content-Encoding {coding} here")


def _encoded(pieces: Iterable[bytes], coding: str) -> Iterator[bytes]:
    """The pieces compressed, none of them empty: an empty chunk would end the answer."""
    match coding:
        case "gzip":
            stream: Any = zlib.compressobj(3, wbits=31)
        case "zstd":
            stream = zstandard.ZstdCompressor(1).compressobj()
        case "lz4":
            stream = lz4.frame.LZ4FrameCompressor()
            pieces = chain([stream.begin()], map(stream.compress, pieces))
        case _:
            yield from filter(None, pieces)
            return
    done = pieces if coding == "lz4" else map(stream.compress, pieces)
    yield from filter(None, done)
    yield from filter(None, [stream.flush()])


def main(folder: str, port: str, database: str) -> None:
    """Serves until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    account = Account(os.environ["CLICKHOUSE_USER"], os.environ["CLICKHOUSE_PASSWORD"])
    engine = Engine(Path(folder), database)
    with Front(engine, account, int(port), database) as front:
        front.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
