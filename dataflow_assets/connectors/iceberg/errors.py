"""Meanings of the errors of the catalog and of the object store for the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

from pydantic import ValidationError
from pyiceberg import exceptions as ice
from pyiceberg.catalog.rest.response import TokenResponse
from requests import Request, RequestException, Response

from dataflow_assets.connectors.iceberg.connection import CatalogConnection
from dataflow_assets.connectors.iceberg.nessie import NessieConnection
from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.sdk.causes import cause, no_room, store_silence
from dataflow_assets.sdk.handshake import Options, refusal

_DENIED = (ice.UnauthorizedError, ice.ForbiddenError, ice.OAuthError)
_OPTIONS = Options("REQUESTS_CA_BUNDLE in the environment", "", "", "the address of the catalog")
GONE = (ice.NoSuchNamespaceError, ice.NoSuchTableError, ice.NoSuchIdentifierError)
"""The table, or what it is in, does not exist."""
_BUSY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
_PORTS = {"http": 80, "https": 443}
_DOWN = (
    RequestException,
    OSError,
    ice.ServerError,
    ice.ServiceUnavailableError,
    ice.TooManyRequestsError,
    ice.CommitStateUnknownException,
    ice.AuthorizationExpiredError,
)
LOST = (
    RequestException,
    OSError,
    ValidationError,  # an answer cut short, or not the catalog's
    ice.ServerError,
    ice.CommitStateUnknownException,
    ice.ServiceUnavailableError,
    ice.TooManyRequestsError,
)
"""No answer that could be read: what was asked may have been done."""
_CREDENTIALS = "check the credentials and what they may do"
_UNKNOWN_WAREHOUSE = "IllegalStateException: Warehouse"
"""Nessie answers as if it had failed itself."""
_ON_A_TAG = ("Can only commit to a branch", "Reference to commit into must be a branch")
"""How Nessie refuses to change a tag."""
# The object store's client tells these apart in its text only.
_S3_DENIED = ("ACCESS_DENIED", "INVALID_ACCESS_KEY", "SIGNATURE_DOES_NOT_MATCH")
_NO_BUCKET = ("NO_SUCH_BUCKET", "NoSuchBucket")


@contextmanager
def translate_errors(settings: CatalogConnection, what: str) -> Iterator[None]:
    """Turns what PyIceberg, requests and the object store raise into our errors."""
    try:
        yield
    except DataflowError:
        raise
    except Exception as error:
        raise _ours(error, settings, what) from error


def _ours(error: Exception, settings: CatalogConnection, what: str) -> DataflowError:
    where = (
        f"cannot {what} {settings.namespace}.{settings.table} at {settings.address().connection}"
    )
    if silent := store_silence(error, settings.store_endpoint):
        return TransientError(f"{where}: {silent}")
    line = str(error).partition("\n")[0][:500]
    text = f"{where}: {type(error).__name__}: {line}"
    advice = _CREDENTIALS if isinstance(error, _DENIED) else _known_by_its_text(text, settings)
    if advice:
        return PermanentError(f"{text}; {advice}")
    if isinstance(error, ValidationError):
        return PermanentError(_foreign_answer(error, settings, where, text))
    if (answer := _of_the_token_server(error, settings)) is not None:
        return _status_error(answer, f"{where}: no token from {settings.token_endpoint}")
    if why := refusal(error, "", "the catalog's address", _OPTIONS):
        return PermanentError(f"{where}: {why}")
    if isinstance(error, RequestException) and error.response is None:
        return TransientError(f"{where}: {_no_answer(error)}")
    if isinstance(error, _DOWN):
        return TransientError(f"{text}{no_room(text)}")
    if isinstance(error, ice.NoSuchTableError):
        return PermanentError(f"{text}; create the table again, or set autoCreateTable: true")
    if isinstance(error, (ice.RESTError, *GONE)):
        return PermanentError(f"{text}; check {settings.place}")
    return PermanentError(text)


def _foreign_answer(
    error: ValidationError, settings: CatalogConnection, where: str, text: str
) -> str:
    if error.title == TokenResponse.__name__:
        endpoint = settings.token_endpoint
        return f"{where}: the answer of {endpoint} is not a token; check oauth2ServerURI"
    return f"{text}: the answer may be of another server; check {settings.place}"


def _of_the_token_server(error: Exception, settings: CatalogConnection) -> Response | None:
    """The answer without a token that is behind an error; None where it is another server's."""
    answer: Response | None = getattr(error.__cause__, "response", None)
    endpoint = Request("POST", settings.token_endpoint).prepare().url
    return answer if answer is not None and answer.request.url == endpoint else None


def _status_error(answer: Response, what: str) -> DataflowError:
    status = answer.status_code
    if status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return TransientError(f"{what}: HTTP status {status}")
    return PermanentError(f"{what}: HTTP status {status}; check oauth2ServerURI")


def _known_by_its_text(text: str, settings: CatalogConnection) -> str:
    if any(word in text for word in _S3_DENIED):
        return _CREDENTIALS
    if any(word in text for word in _NO_BUCKET):
        return f"create the bucket, or check s3Endpoint and {settings.place}"
    if any(word in text for word in _ON_A_TAG):
        return "a tag cannot be written to: set branch to the name of a branch"
    return f"check {settings.place}" if _UNKNOWN_WAREHOUSE in text else ""


def unknown_reference(nessie: NessieConnection, path: str) -> PermanentError:
    """For HTTP status 404 of Nessie's own interface, which is asked about a table that is there."""
    return PermanentError(
        f"nessie {nessie.address().connection}: HTTP status 404 for /{path}: branch or tag "
        f"{nessie.branch} is gone, or Nessie's own API is not reached; check branch and baseURL: "
        "what is in front of Nessie must pass on /api/v2 as well as /iceberg"
    )


def _no_answer(error: RequestException) -> str:
    address = urlsplit(str(error.request.url or "")) if error.request else None
    who = (
        f" from {address.hostname}:{address.port or _PORTS.get(address.scheme)}" if address else ""
    )
    return (
        f"no answer{who}: {cause(error)}; check that a server runs there, and that the manifest "
        "has the address of the catalog"
    )
