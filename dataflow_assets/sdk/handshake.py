"""Why a server and a client agree on no TLS connection: most clients say that they do not, not why.

So the handshake is tried once more by Python's own TLS, with the same certificates. It tells an
expired certificate from a foreign one and from one for another host, and what the server answers to
the client's certificate.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from dataflow_assets.secrets import tls

SECONDS = 3.0
MOMENT = 1.0  # in which a server answers to a first word, or to the client's certificate
_EXPIRED, _NOT_YET = 10, 9  # OpenSSL's numbers of what is wrong with a certificate
_FOREIGN = {2, 18, 19, 20, 21}
_NAME = {62, 64}
_ASKS = ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE")
_REFUSES = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")


@dataclass(frozen=True)
class Options:
    """What a connector calls the options that a person must look at."""

    ca: str
    cert: str
    key: str
    name: str
    """Where the server's name is given."""


def trouble(
    material: tls.Material,
    where: tuple[str, int],
    options: Options,
    greet: Callable[[socket.socket], object] = lambda _: None,
    *,
    address: str = "",
) -> str:
    """What a person must change about certificates or names, as a clause; empty for nothing.

    Called on the driver and in tasks once a client has complained of TLS; takes seconds at most.

    Args:
        material: what the client trusts, and who it is.
        where: host and port.
        options: their names, for the clause.
        greet: what comes before the handshake in the server's protocol.
        address: what to connect to, where that is not the host.
    """
    try:
        with socket.create_connection((address or where[0], where[1]), SECONDS) as plain:
            greet(plain)
            with tls.context(material).wrap_socket(plain, server_hostname=where[0]) as wrapped:
                wrapped.settimeout(MOMENT)
                wrapped.recv(1)  # TLS 1.3: a client's certificate is judged after the handshake
    except ssl.SSLCertVerificationError as error:
        return _of_the_server(error, material.ca, where[0], options)
    except ssl.SSLError as error:
        return _of_the_client(error.reason or "", material, options)
    except OSError:
        return ""
    return ""


def refusal(error: BaseException, ca: str, host: str, options: Options) -> str:
    """Says what a person must change where a client has refused a server's certificate, or TLS.

    Called on the driver and in tasks with what a client of Python's own TLS has raised.

    Args:
        error: in whose causes the refusal is looked for.
        ca: what the client trusts, as PEM text; empty for the machine's own authorities.
        host: by whose name the server is reached.
        options: their names, for the clause.

    Returns:
        A clause; empty where TLS is not the reason.
    """
    seen: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ssl.SSLCertVerificationError):
            return _of_the_server(one, ca, host, options)
        if isinstance(one, ssl.SSLError) and one.reason == "WRONG_VERSION_NUMBER":
            return f"it does not speak TLS; use http:// in {options.name}, or TLS on the server"
        if isinstance(one, BaseException) and one not in seen:
            seen.append(one)
            waiting += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]
    return ""


def encrypts(where: tuple[str, int]) -> bool:
    """Returns whether a server begins with a TLS handshake.

    Called on the driver and in tasks once a server has hung up on a client without TLS.

    Args:
        where: host and port.
    """
    anything = tls.context(tls.Material(verify=False))
    try:
        with (
            socket.create_connection(where, MOMENT) as plain,
            anything.wrap_socket(plain, server_hostname=where[0]),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _of_the_server(
    error: ssl.SSLCertVerificationError, ca: str, host: str, options: Options
) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "its certificate has expired; it must be renewed on the server"
    if code == _NOT_YET:
        return "its certificate is not valid yet; compare the clocks of server and client"
    if code in _NAME:
        return f"its certificate is not for {host}; use a name of its certificate in {options.name}"
    if code in _FOREIGN and ca:
        return f"another CA than that of {options.ca} has signed its certificate; set its own CA"
    if code in _FOREIGN:
        return f"no CA that this machine trusts has signed its certificate; set {options.ca}"
    return f"its certificate is not accepted: {error.verify_message}"


def _of_the_client(reason: str, material: tls.Material, options: Options) -> str:
    if "ALERT" not in reason:
        return ""
    if not material.cert:
        asks = any(word in reason for word in _ASKS)
        answer = f"it asks for a client's certificate; set {options.cert} and {options.key}"
        return answer if asks else ""
    if "EXPIRED" in reason:
        return f"it refuses the certificate of {options.cert}, which has expired"
    if any(word in reason for word in _REFUSES):
        return (
            f"it refuses the certificate of {options.cert}: it trusts other CAs than the one that "
            "has signed it, or the certificate has expired"
        )
    return ""
