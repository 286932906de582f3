"""Connection strings: URL or libpq key=value, read leniently and never echoed.

What the Go driver understands and libpq does not is mended here: odd characters in a URL's password
are taken as they stand, pool settings are dropped, run-time parameters become `options`.

Certificates and keys are PEM text, an absolute path, or `namespace/name/key` below
DATAFLOW_SECRETS; libpq gets private files with what was read. Other options that name a file are
refused: a manifest must not choose which files of the machine are read, or written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from urllib.parse import parse_qsl, unquote

from psycopg import Error, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.connection_strings import foreign, unescape, url
from dataflow_assets.secrets import FOLDER
from dataflow_assets.secrets.private_files import private_file
from dataflow_assets.secrets.tls import Material, Tls, names_one, pem, warn_unchecked

_DROPPED = ("pool_", "statement_cache", "description_cache", "default_query_exec_mode")
_FILES = frozenset({"sslcert", "sslkey", "sslrootcert", "sslcrl"})
_CHECKED = ("verify-ca", "verify-full")
_ENCRYPTED = ("require", *_CHECKED)
_SYSTEM = ("sslrootcert", "system")  # libpq's word for the certificates of the machine
# Each reads a file of its own choice with settings or passwords, loads or writes one.
_REFUSED = frozenset({"passfile", "service", "servicefile", "sslcrldir", "sslkeylogfile", "gsslib"})
_PORT = "the port must be a number from 1 to 65535, as in host:5432"
# A dead peer is noticed within about a minute; the server's own settings bound the rest.
_LIVENESS = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


@cache
def parse(text: str) -> dict[str, str]:
    """The settings of a connection string by libpq's keywords. Errors never show the string."""
    if not text.strip():  # libpq would go wherever this machine's environment says
        raise PermanentError("connectionString: the value, or its Secret, is empty")
    try:
        settings = _from_url(text.strip()) if "://" in text else dict(conninfo_to_dict(text))
    except (Error, ValueError):
        settings = None
    if settings is None:
        usual = "neither a postgresql:// URL nor libpq's key=value text"
        raise PermanentError(f"connectionString: {foreign(text.strip()) or usual}")
    texts = {key: str(value) for key, value in settings.items() if value not in {None, ""}}
    _check_ports(texts)
    _check_files(texts)
    return texts


def conninfo(text: str, application: str) -> str:
    """What both drivers get: the settings, time limits, the session's name and its encoding.

    Whatever encoding the database has: all that we send and read is UTF-8.
    """
    settings = _LIVENESS | _with_files(_with_authorities(parse(text)))
    own = {"application_name": application, "client_encoding": "utf8"}
    return make_conninfo("", **{**settings, **own})


def with_tls(text: str, tls: Tls) -> str:
    """A connection string with the certificates of a block `tls` as texts.

    Without an `sslmode` of its own the server's certificate and name are checked. Raises
    PermanentError for a block that is broken, or that contradicts the string.
    """
    settings, material = parse(text), tls.material()
    mode = settings.get("sslmode") or ("verify-full" if material.verify else "require")
    if mode not in _ENCRYPTED:
        raise PermanentError(
            f"connectionString: sslmode={mode} does not encrypt for certain, and there is a block "
            f"tls; allowed beside it: {', '.join(_ENCRYPTED)}"
        )
    if mode == "require" and not material.verify:
        warn_unchecked(f"postgresql {server(text)}")
    certs = {"sslrootcert": material.ca, "sslcert": material.cert, "sslkey": material.key}
    files = {key: value for key, value in certs.items() if value}
    own = _with_authorities({**settings, "sslmode": mode, **files})
    return make_conninfo("", **own)


def _with_authorities(settings: dict[str, str]) -> dict[str, str]:
    """The system's authorities where a server is to be checked and none are given, as Go does.

    Raises PermanentError for a mode that libpq does not have with them.
    """
    mode = settings.get("sslmode")
    if mode not in _CHECKED or settings.get("sslrootcert"):
        return settings
    if mode == "verify-ca":
        raise PermanentError(
            "connectionString: sslmode=verify-ca needs the CA that has signed the server's "
            "certificate: set sslrootcert (or caFile of the block tls), or write "
            "sslmode=verify-full, which takes the system's"
        )
    return settings | {"sslrootcert": "system"}


def material(text: str) -> Material:
    """The certificates of a connection string as texts, for Python's own TLS."""
    settings = parse(text)
    mode = settings.get("sslmode", "prefer")
    root = settings.get("sslrootcert", "")
    checked = mode in _CHECKED or root == "system" or (mode == "require" and bool(root))
    return Material(
        "" if root == "system" else _pem("sslrootcert", root),
        _pem("sslcert", settings.get("sslcert", "")),
        _pem("sslkey", settings.get("sslkey", "")),
        verify=checked,  # libpq checks `require`, too, where it has a CA
        names=mode == "verify-full" or root == "system",
    )


def files(text: str) -> tuple[str, ...]:
    """The values of a connection string that are certificates and keys, or name them."""
    return tuple(value for key, value in parse(text).items() if key in _FILES)


def _check_ports(settings: Mapping[str, str]) -> None:
    for port in filter(None, settings.get("port", "").split(",")):
        if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
            raise PermanentError(f"connectionString: {_PORT}")


def _check_files(settings: dict[str, str]) -> None:
    for key in sorted(_REFUSED & settings.keys()):
        raise PermanentError(f"connectionString: {key} names a file, which is not allowed here")
    for key in sorted(_FILES & settings.keys()):
        if not names_one(settings[key]) and (key, settings[key]) != _SYSTEM:
            raise PermanentError(
                f"connectionString: {key} must be an absolute path, PEM text, or the name of a "
                f"file below {FOLDER}, written {key}=namespace/name/key"
            )


def _with_files(settings: dict[str, str]) -> dict[str, str]:
    """The settings with a private file for each certificate and key: libpq takes files only."""
    files = {k: v for k, v in settings.items() if k in _FILES and (k, v) != _SYSTEM}
    return settings | {key: private_file(_pem(key, value)) for key, value in files.items()}


def _pem(key: str, value: str) -> str:
    return pem(value, f"connectionString: {key}")


def server(text: str) -> str:
    """Host and database: known without network, never with user or password."""
    settings = parse(text)
    host = settings.get("host", "localhost")
    database = settings.get("dbname") or settings.get("user") or "postgres"
    return f"{host}/{database}"


def servers(text: str) -> tuple[str, ...]:
    """`host:port/database` of each host; the default port may be left out."""
    settings = parse(text)
    database = settings.get("dbname") or settings.get("user") or "postgres"
    places: list[str] = []
    for host, port in _ports(settings):
        places += [f"{host}:{port}/{database}"] + [f"{host}/{database}"] * (port == "5432")
    return tuple(places)


def endpoints(text: str) -> list[tuple[str, str, str]]:
    """Host, address and port of each server that is reached over a network.

    The address may be empty: then the host tells it.
    """
    settings = parse(text)
    pairs = _ports(settings)
    addresses = settings.get("hostaddr", "").split(",")
    addresses = addresses if len(addresses) == len(pairs) else [""] * len(pairs)
    zipped = zip(pairs, addresses, strict=True)
    return [(host, address, port) for (host, port), address in zipped if not host.startswith("/")]


def _ports(settings: Mapping[str, str]) -> list[tuple[str, str]]:
    hosts = settings.get("host", "localhost").split(",")
    ports = [port or "5432" for port in settings.get("port", "").split(",")]
    ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
    return list(zip(hosts, ports, strict=True))


def same(one: str, other: str) -> bool:
    """Returns whether sessions of both do the same: one server, one database, one role."""
    return _session(one) == _session(other)


def _session(text: str) -> dict[str, str]:
    settings = {k: v for k, v in parse(text).items() if k not in {*_LIVENESS, "application_name"}}
    user = settings.get("user", "")
    usual = {"host": "localhost", "port": "5432", "dbname": user or "postgres"}
    return usual | settings


def scrub(message: str, text: str) -> str:
    """The message without the password, should a driver ever show it."""
    password = parse(text).get("password")
    return message.replace(password, "***") if password else message


def _from_url(text: str) -> dict[str, str] | None:
    match = url(text, "postgres(?:ql)?", r"[^/?@]*")
    if match is None:
        return None
    host, port = _hosts(match["hosts"])
    parts = {
        "user": unquote(match["user"] or ""),
        "password": unescape(match["password"] or ""),
        "host": host,
        "port": port,
        "dbname": unquote(match["database"] or ""),
    }
    return {**parts, **_query(match["query"] or "")}


def _hosts(text: str) -> tuple[str, str]:
    pairs = [_host(part) for part in text.split(",")]
    ports = [port for _, port in pairs]
    return ",".join(host for host, _ in pairs), ",".join(ports) if any(ports) else ""


def _host(text: str) -> tuple[str, str]:
    match = re.match(r"^(\[[^\]]*\]|[^:]*)(?::(\d*))?$", text)
    if match is None:
        raise PermanentError(f"connectionString: {_PORT}")
    return unquote(match[1].strip("[]")), match[2] or ""


def _query(text: str) -> dict[str, str]:
    values, options = {}, []
    for key, value in parse_qsl(text, keep_blank_values=True):
        if key in _keywords():
            values[key] = value
        elif not key.startswith(_DROPPED):
            options.append(f"-c {key}={_escape(value)}")
    if options:
        values["options"] = " ".join([*filter(None, [values.get("options")]), *options])
    return values


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


@cache
def _keywords() -> frozenset[str]:
    return frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults())
