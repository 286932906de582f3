"""Connection strings: `clickhouse://`, `http://` and `https://` URLs, never echoed.

Only ClickHouse's HTTP interface is spoken. Of native addresses the two standard ports are taken for
the HTTP ports beside them; another native port says nothing about where HTTP is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import parse_qsl, quote, unquote, urlencode

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.connection_strings import foreign, unescape, url
from dataflow_assets.secrets import FOLDER
from dataflow_assets.secrets.tls import Material, Tls, names_one, pem

_HTTP = {False: 8123, True: 8443}
_NATIVE = {9000: False, 9440: True}
# Of the Go driver, and of no use here: pools, protocol blocks, logging.
_DROPPED = frozenset(
    {"debug", "block_buffer_size", "max_open_conns", "max_idle_conns", "conn_max_lifetime"}
    | {
        "connection_open_strategy",
        "client_info_product",
        "compress_level",
        "max_compression_buffer",
    }
)
_CERTIFICATES = ("ca_cert", "client_cert", "client_cert_key")
_OPTIONS = frozenset(
    {"username", "user", "password", "database", "secure", "skip_verify", "compress"}
    | {"dial_timeout", "connect_timeout", "read_timeout", "send_receive_timeout", "http_path"}
    | {*_CERTIFICATES}
)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST = 7 * 24 * 3600  # seconds
_NUMERIC = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Dsn:
    """A database of a server, and how it is talked to."""

    hosts: tuple[tuple[str, int], ...]
    """Host and HTTP port; the first that answers is used."""
    database: str = "default"
    user: str = "default"
    password: str = field(default="", repr=False)
    secure: bool = False
    verify: bool = True
    """A CA that is given is always used."""
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    """`ca_cert`, `client_cert` and `client_cert_key`, if given: PEM text or a file's name."""
    compress: str | bool = True
    path: str = ""
    connect_seconds: int = 10
    answer_seconds: int = 300
    settings: Mapping[str, str] = field(default_factory=dict)
    """The server's own, for every query."""
    note: str = ""
    """What a person should be told about how the string was read."""
    idle: tuple[str, ...] = ()
    """Parameters that are known and have no effect."""


@cache
def parse(text: str) -> Dsn:
    """Returns what a connection string names. Errors never show the string.

    Raises PermanentError naming what is allowed.
    """
    match = _parts(text)
    if match is None:
        usual = (
            "not a URL of ClickHouse; write http://user:password@host:8123/database,"
            " https://... or clickhouse://user:password@host:9000/database"
        )
        raise PermanentError(f"connectionString: {foreign(text.strip()) or usual}")
    query = dict(parse_qsl(match["query"] or "", keep_blank_values=True))
    native = match["scheme"] == "clickhouse"
    secure = match["scheme"] == "https" or _flag(query, "secure")
    hosts = [_host(part, native=native, secure=secure) for part in match["hosts"].split(",")]
    secure = secure or any(encrypted for _, _, encrypted in hosts)
    return Dsn(
        hosts=tuple((host, port) for host, port, _ in hosts),
        database=unquote(match["database"] or "") or query.get("database") or "default",
        user=unquote(match["user"] or "") or query.get("username") or query.get("user", "default"),
        password=unescape(match["password"] or "") or query.get("password", ""),
        secure=secure,
        verify=not _flag(query, "skip_verify") or bool(query.get("ca_cert")),
        files=_files(query, secure=secure),
        compress=_compression(query.get("compress", "true")),
        path=query.get("http_path", ""),
        connect_seconds=_seconds(query, 10, "dial_timeout", "connect_timeout"),
        answer_seconds=_seconds(query, 300, "read_timeout", "send_receive_timeout"),
        settings={k: v for k, v in query.items() if k not in _OPTIONS | _DROPPED},
        note=_note(match["hosts"], hosts) if native else "",
        idle=tuple(key for key in query if key in _DROPPED),
    )


def _parts(text: str) -> re.Match[str] | None:
    return url(text.strip(), "clickhouse|https?")


def with_tls(text: str, tls: Tls) -> str:
    """A connection string with the certificates of a block `tls` as texts.

    Raises PermanentError for a block that is broken, or that contradicts the string.
    """
    if not parse(text).secure:
        raise PermanentError(
            "connectionString: there is a block tls, but the connection is not encrypted; write "
            "https:// or secure=true"
        )
    certs = tls.material()
    texts = dict(zip(_CERTIFICATES, (certs.ca, certs.cert, certs.key), strict=True))
    more = {key: value for key, value in texts.items() if value}
    more |= {} if certs.verify else {"skip_verify": "true"}
    match = _parts(text)
    has_query = match is not None and match["query"] is not None  # a password may have a `?`
    return text.strip() + ("&" if has_query else "?") + urlencode(more, quote_via=quote)


def material(parsed: Dsn) -> Material:
    """The certificates as texts. Raises PermanentError where one is missing or broken."""
    texts = {key: pem(value, f"connectionString: {key}") for key, value in parsed.files.items()}
    ca, cert, key = (texts.get(name, "") for name in _CERTIFICATES)
    return Material(ca, cert, key, verify=parsed.verify)


def _files(query: Mapping[str, str], *, secure: bool) -> dict[str, str]:
    files = {key: query[key] for key in _CERTIFICATES if query.get(key)}
    for key, value in files.items():
        if not names_one(value):
            raise PermanentError(
                f"connectionString: {key} must be an absolute path, PEM text, or the name of a "
                f"file below {FOLDER}, written {key}=namespace/name/key"
            )
    if files and not secure:
        raise PermanentError(
            f"connectionString: {', '.join(files)} without encryption; write https:// or "
            "secure=true"
        )
    if ("client_cert" in files) != ("client_cert_key" in files):
        raise PermanentError("connectionString: client_cert and client_cert_key belong together")
    return files


def server(text: str) -> str:
    """Host and database: known without network, never with user or password."""
    parsed = parse(text)
    return f"{parsed.hosts[0][0]}/{parsed.database}"


def servers(text: str) -> tuple[str, ...]:
    """`host:port/database` of each host, with its HTTP and its native port; standard ones bare."""
    parsed = parse(text)
    places: list[str] = []
    for host, port in parsed.hosts:
        places.append(f"{host}:{port}/{parsed.database}")
        if port == _HTTP[parsed.secure]:
            native = next(port for port, secure in _NATIVE.items() if secure == parsed.secure)
            places += [f"{host}:{native}/{parsed.database}", f"{host}/{parsed.database}"]
    return tuple(places)


def scrub(message: str, text: str) -> str:
    """The message without the password, should a driver ever show it."""
    password = parse(text).password
    return message.replace(password, "***") if password else message


def _host(text: str, *, native: bool, secure: bool) -> tuple[str, int, bool]:
    """Host, HTTP port and whether that port is encrypted."""
    match = re.match(r"^(\[[^\]]*\]|[^:]*)(?::(\d+))?$", text)
    if match is None or not match[1]:
        raise PermanentError("connectionString: a host is missing, or its port is not a number")
    host = unquote(match[1].strip("[]"))
    if match[2] is None:
        return host, _HTTP[secure], secure
    port = int(match[2])
    if not 0 < port < 65536:
        raise PermanentError("connectionString: the port must be a number from 1 to 65535")
    if not native or port in _HTTP.values():
        return host, port, secure or (native and port == _HTTP[True])
    if port not in _NATIVE:
        scheme = "https" if secure else "http"
        raise PermanentError(
            f"connectionString: clickhouse://{host}:{port} names a port of the native protocol, "
            "which is not spoken here; only its standard ports 9000 and 9440 are taken for the "
            "HTTP ports 8123 and 8443. Name the server's HTTP port: "
            f"{scheme}://user:password@{host}:PORT/database"
        )
    encrypted = secure or _NATIVE[port]
    return host, _HTTP[encrypted], encrypted


def _note(hosts: str, found: list[tuple[str, int, bool]]) -> str:
    reached = ", ".join(f"{host}:{port}" for host, port, _ in found)
    same = all(
        part.endswith(f":{port}")
        for part, (_, port, _) in zip(hosts.split(","), found, strict=True)
    )
    return "" if same else f"clickhouse://{hosts} is reached over HTTP at {reached}"


def _flag(query: Mapping[str, str], name: str) -> bool:
    value = query.get(name, "false").lower()
    if value not in {"", "true", "false", "1", "0"}:
        raise PermanentError(f"connectionString: {name} is true or false")
    return value in {"", "true", "1"}


def _compression(value: str) -> str | bool:
    """`true` and `false`, or the name of a method; the Go driver's `none` is false."""
    words = {"true": True, "1": True, "": True, "false": False, "0": False, "none": False}
    if value.lower() in words:
        return words[value.lower()]
    if value.lower() not in {"lz4", "zstd", "gzip"}:
        raise PermanentError("connectionString: compress is true, false, lz4, zstd or gzip")
    return value.lower()


def _seconds(query: Mapping[str, str], usual: int, *names: str) -> int:
    """A duration as the Go driver writes it (10s, 1m30s, 500ms), or a number of seconds."""
    name = next((name for name in names if name in query), None)
    if name is None:
        return usual
    value = query[name].strip()
    if _NUMERIC.fullmatch(value):
        value += "s"
    parts = _DURATION.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise PermanentError(f"connectionString: {name} is a duration such as 10s or 1m30s")
    total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if total > _LONGEST:
        raise PermanentError(f"connectionString: {name} is at most {_LONGEST} seconds")
    return max(1, round(total))
