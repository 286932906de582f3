"""The REST catalog with deadlines."""

from __future__ import annotations

from contextlib import suppress
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
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

from dataflow_assets.connectors.iceberg.connection import IcebergConnection
from dataflow_assets.connectors.iceberg.errors import GONE, translated
from dataflow_assets.errors import PermanentError

TIMEOUT = (5.0, 60.0)  # seconds to connect, seconds to answer


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
        with suppress(*GONE):
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
    with translated(settings, what):
        return BoundedCatalog("dataflow", **settings.catalog_properties())
