"""The REST catalog with deadlines, and its errors sorted by what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from pyiceberg import exceptions as ice
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter

from dataflow_assets.connectors.iceberg.settings import IcebergConnection
from dataflow_assets.errors import DataflowError, PermanentError, TransientError

TIMEOUT = (5.0, 60.0)  # seconds to connect, seconds to answer
_DENIED = (ice.UnauthorizedError, ice.ForbiddenError, ice.OAuthError)
_GONE = (ice.NoSuchNamespaceError, ice.NoSuchTableError, ice.NoSuchIdentifierError)
_DOWN = (
    RequestException,
    OSError,
    ice.ServerError,
    ice.ServiceUnavailableError,
    ice.TooManyRequestsError,
    ice.CommitStateUnknownException,
    ice.AuthorizationExpiredError,
)
# The object store's client tells these apart in its text only.
_S3_DENIED = ("ACCESS_DENIED", "INVALID_ACCESS_KEY", "SIGNATURE_DOES_NOT_MATCH", "NO_SUCH_BUCKET")


class _Deadline(HTTPAdapter):
    """Never waits without end and never sends twice: a commit repeated unseen is a lost answer."""

    def __init__(self) -> None:
        super().__init__(max_retries=0)

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        options["timeout"] = options.get("timeout") or TIMEOUT
        return super().send(request, *args, **options)


class RemoteFiles(PyArrowFileIO):
    """Files in object stores only: a catalog's answer must not choose files of this machine."""

    def _initialize_local_fs(self) -> NoReturn:
        raise PermanentError(
            "the catalog names a local path for a file of the table; files must be in an object "
            "store such as s3://"
        )


REMOTE_FILES = {PY_IO_IMPL: f"{RemoteFiles.__module__}.{RemoteFiles.__qualname__}"}
"""Go over whatever a catalog asks for: it may name any class that can be imported."""


class BoundedCatalog(RestCatalog):
    """PyIceberg's own catalog has no option for time-outs."""

    def _config_headers(self, session: Session) -> None:
        """Called first on every session, before anything is sent: the one place to add adapters."""
        super()._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Deadline())

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        """Called for every table, with what the catalog and the table ask for."""
        return super()._load_file_io({**properties, **REMOTE_FILES}, location)

    def table(self, identifier: Identifier) -> Table | None:
        """The table as it stands now; None where it or its namespace is missing."""
        with suppress(*_GONE):
            found: Table = self.load_table(identifier)
            return found
        return None

    def made(
        self,
        identifier: Identifier,
        schema: Schema,
        properties: dict[str, str],
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        order: SortOrder = UNSORTED_SORT_ORDER,
    ) -> Table:
        """A new table; the one that stands there where somebody was quicker."""
        try:
            new: Table = self.create_table(
                identifier, schema, partition_spec=spec, sort_order=order, properties=properties
            )
        except ice.TableAlreadyExistsError:
            new = self.load_table(identifier)
        return new


def connect(settings: IcebergConnection, what: str = "reach the catalog") -> BoundedCatalog:
    """A catalog that answers. Raises TransientError or PermanentError."""
    with errors(settings, what):
        return BoundedCatalog("dataflow", **settings.catalog_properties())


@contextmanager
def errors(settings: IcebergConnection, what: str) -> Iterator[None]:
    """Turns what PyIceberg, requests and the object store raise into our errors."""
    try:
        yield
    except DataflowError:
        raise
    except Exception as error:
        raise _sorted(error, settings, what) from error


def _sorted(error: Exception, settings: IcebergConnection, what: str) -> DataflowError:
    where = (
        f"cannot {what} {settings.namespace}.{settings.table} at {settings.address().connection}"
    )
    text = f"{where}: {type(error).__name__}: {_first_line(error)}"
    if isinstance(error, _DENIED) or any(word in text for word in _S3_DENIED):
        return PermanentError(f"{text}; check the credentials and what they may do")
    if isinstance(error, _DOWN):
        return TransientError(text)
    if isinstance(error, ice.NoSuchTableError):
        return PermanentError(f"{text}; create the table again, or set autoCreateTable: true")
    if isinstance(error, (ice.RESTError, *_GONE)):
        return PermanentError(f"{text}; check warehouse, namespace and prefix")
    return PermanentError(text)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:500]
