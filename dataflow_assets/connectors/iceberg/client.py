"""The REST catalog with deadlines, and one of its kind for all sessions of a process.

Each catalog and each object store's client has connections of its own: one for each of two hundred
open flows would use up the descriptors of the process.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, ClassVar, NoReturn
from urllib.parse import quote
from weakref import WeakValueDictionary

from pyarrow.fs import FileSystem
from pyiceberg import exceptions as ice
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertCreate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from typing_extensions import override

from dataflow_assets.connectors.iceberg import new_tables
from dataflow_assets.connectors.iceberg.bucket import BucketConnection
from dataflow_assets.connectors.iceberg.bucket_catalog import BucketCatalog
from dataflow_assets.connectors.iceberg.connection import CatalogConnection
from dataflow_assets.connectors.iceberg.errors import translate_errors, unknown_reference
from dataflow_assets.connectors.iceberg.nessie import NessieConnection
from dataflow_assets.connectors.iceberg.table_catalog import CONFLICTS, TableCatalog
from dataflow_assets.errors import PermanentError, TransientError

TIMEOUT = (5.0, 60.0)  # seconds to connect, seconds to answer
CONNECTIONS = 8  # of a catalog at once; who comes later waits
SHARED_SECONDS = 60.0
"""Who connects later gets a catalog of its own: a token that is refused for good heals by that."""
STORES = 16  # clients of object stores that stay: one for each bucket and its credentials
ACCESS_KEY = "s3.access-key-id"
NO_SNAPSHOT = -1  # how Nessie's log says that a table has none yet
PAGE = 200  # entries of Nessie's log with one request
LEVELS = "\x1f"  # between the levels of a namespace, in addresses of the Iceberg REST protocol
_FILES = ("s3.", "client.", "gcs.", "adls.", "hdfs.")  # what a store's client is made of


class _Deadline(HTTPAdapter):
    """Never waits without end and never sends twice: a commit repeated unseen is a lost answer."""

    def __init__(self) -> None:
        super().__init__(max_retries=0, pool_maxsize=CONNECTIONS, pool_block=True)

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        options["timeout"] = options.get("timeout") or TIMEOUT
        return super().send(request, *args, **options)


class _LastColumn(_Deadline):
    """Says of a schema that is added which id its columns have come to.

    Nessie requires that, and PyIceberg does not say it any more.
    """

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        body = request.body
        if isinstance(body, bytes) and b'"add-schema"' in body:
            request.prepare_body(with_last_column(body), None)
        return super().send(request, *args, **options)


def with_last_column(body: bytes) -> bytes:
    """A commit's request with the highest id of the columns of each schema that it adds."""
    request = json.loads(body)
    for update in request.get("updates", ()):
        if update.get("action") == "add-schema":
            schema = Schema.model_validate(update["schema"])
            update.setdefault("last-column-id", schema.highest_field_id)
    return json.dumps(request).encode()


class RemoteFiles(PyArrowFileIO):
    """Files in object stores only: a catalog's answer must not choose files of this machine.

    Every look at a table makes one of these; the client behind it is shared.
    """

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        settings = [(k, str(v)) for k, v in self.properties.items() if k.startswith(_FILES)]
        key = (os.getpid(), scheme, netloc, *sorted(settings))
        with _sharing:
            store = _stores.pop(key, None) or super()._initialize_fs(scheme, netloc)
            _stores[key] = store  # the one used last comes last
            for unused in [*_stores][:-STORES]:
                del _stores[unused]
        return store

    def _initialize_local_fs(self) -> NoReturn:
        raise PermanentError(
            "the catalog names a local path for a file of the table; files must be in an object "
            "store such as s3://"
        )


_sharing = threading.Lock()
_stores: dict[tuple[Any, ...], FileSystem] = {}
REMOTE_FILES = {PY_IO_IMPL: f"{RemoteFiles.__module__}.{RemoteFiles.__qualname__}"}
"""Go over whatever a catalog asks for: it may name any class that can be imported."""


class BoundedCatalog(TableCatalog, RestCatalog):
    """PyIceberg's own catalog has no option for time-outs."""

    adapter: ClassVar[type[_Deadline]] = _Deadline

    def __init__(self, name: str, **properties: Any) -> None:
        self.connected_at = time.monotonic()
        self._store = {key: value for key, value in properties.items() if key.startswith("s3.")}
        super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        """Called first on every session, before anything is sent: the one place to add adapters."""
        super()._config_headers(session)
        for scheme in ("http://", "https://"):
            session.mount(scheme, self.adapter())

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        """Called for every table, with what the catalog and the table ask for.

        What the manifest says of the object store wins over what the catalog hands out.
        """
        options = {**properties, **self._store, **REMOTE_FILES}
        if ACCESS_KEY in self._store:
            options = {
                k: v for k, v in options.items() if "session-token" not in k
            }  # of other keys
        return super()._load_file_io(options, location)

    @override
    def first(self, identifier: Identifier, metadata: TableMetadata) -> Table:
        """Creates the table by a commit; `createTable` gives fields new ids."""
        io = self._load_file_io(self.properties, metadata.location)
        new_tables.check_free(self, identifier, io, metadata.location)
        new = Table(identifier, metadata, "", io, self)
        try:
            response = self.commit_table(new, (AssertCreate(),), new_tables.creating(metadata))
        except ice.CommitFailedException as error:
            raise ice.TableAlreadyExistsError(str(error)) from error
        table = Table(identifier, response.metadata, response.metadata_location, io, self)
        new_tables.check_created(self, table, metadata)
        return table


@dataclass(frozen=True)
class TableCommit:
    """A commit of a branch that changed the table; `snapshot` is the table's current one then."""

    hash: str
    snapshot: int
    at: int
    """When it was committed or merged, in milliseconds since 1970."""


class NessieCatalog(BoundedCatalog):
    """Nessie's Iceberg REST catalog on one branch or tag, and what Nessie itself tells of it."""

    adapter = _LastColumn

    def __init__(self, name: str, nessie: NessieConnection, **properties: Any) -> None:
        self._nessie = nessie
        super().__init__(name, **properties)

    @override
    def first(self, identifier: Identifier, metadata: TableMetadata) -> Table:
        """From a metadata file that is registered: Nessie makes tables in no other way like this.

        Nessie reads the file once, and writes its own from then on.
        """
        io = self._load_file_io(self.properties, metadata.location)
        new_tables.check_free(self, identifier, io, metadata.location)
        table: Table = self.register_table(identifier, new_tables.write_metadata(io, metadata))
        new_tables.check_created(self, table, metadata)
        return table

    @override
    def begin(self, table: Table) -> Table:
        """With an empty first snapshot, which one of several writers adds.

        It is added on a fixed commit of the branch: whoever changes the table at the same time
        makes that fail, which an asserted head that is absent would not.
        """
        for _ in range(CONFLICTS):
            if table.metadata.current_snapshot_id is not None:
                return table
            branch = self._nessie.branch
            head = self._ask(f"api/v2/trees/{quote(branch, safe='')}", {})["reference"]["hash"]
            there = self._nessie.model_copy(update={"branch": f"{branch}@{head}"})
            fixed = NessieCatalog("dataflow", there, **there.catalog_properties()).load_table(
                table.name()
            )
            fixed.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"  # in memory only
            if fixed.metadata.current_snapshot_id is None:
                with (
                    suppress(ice.CommitFailedException),
                    fixed.transaction() as change,
                    change.update_snapshot().fast_append(),
                ):
                    pass  # no files
            table = self.load_table(table.name())
        raise TransientError(f"table {'.'.join(table.name())} gets no first snapshot")

    def commits(self, identifier: Identifier) -> Iterator[TableCommit]:
        """The commits that changed the table, the newest first, back to the one that made it."""
        key = [*identifier]
        path = f"trees/{quote(self._nessie.branch, safe='')}/history"
        page: dict[str, Any] = {"hasMore": True}
        while page["hasMore"]:
            page = self._ask(f"api/v2/{path}", _log_query(identifier, page.get("token")))
            for entry in page["logEntries"]:
                changed = [one for one in entry["operations"] if one["key"]["elements"] == key]
                if any(one["type"] == "DELETE" for one in changed):
                    return
                for one in changed:
                    snapshot = int(one["content"]["snapshotId"])
                    if snapshot != NO_SNAPSHOT:
                        meta = entry["commitMeta"]
                        at = datetime.fromisoformat(meta["commitTime"]).timestamp()
                        yield TableCommit(meta["hash"], snapshot, int(at * 1000))

    def snapshot(self, commit: TableCommit, identifier: Identifier) -> Snapshot:
        """The table's current snapshot as it was after that commit."""
        *levels, name = identifier
        reference = f"{self._nessie.branch}@{commit.hash}"
        place = f"namespaces/{quote(LEVELS.join(levels), safe='')}/tables/{quote(name, safe='')}"
        answer = self._ask(
            f"iceberg/v1/{quote(self._nessie.prefix_of(reference), safe='')}/{place}", {}
        )
        metadata = TableMetadataUtil.parse_obj(answer["metadata"])
        snapshot = metadata.snapshot_by_id(commit.snapshot)
        if snapshot is None:
            raise TransientError(f"Nessie shows no snapshot {commit.snapshot} at {commit.hash}")
        return snapshot

    def _ask(self, path: str, query: dict[str, Any]) -> Any:
        """One of Nessie's own addresses, with the authentication of the catalog."""
        address = f"{self._nessie.server}/{path}"
        answer = self._session.get(address, params=query)
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            self._refresh_token()
            answer = self._session.get(address, params=query)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            raise unknown_reference(self._nessie, path)
        refused = {401: ice.UnauthorizedError, 403: ice.ForbiddenError}
        if answer.status_code in refused:
            raise refused[answer.status_code](f"{address}: {answer.text[:300]}")
        answer.raise_for_status()
        return answer.json()


def connect(settings: CatalogConnection, what: str = "reach the catalog of") -> TableCatalog:
    """A catalog that answers, or has just done so. Raises TransientError or PermanentError."""
    properties = settings.catalog_properties()
    key = (os.getpid(), repr(sorted(properties.items())))
    catalog = _catalogs.get(key)
    if catalog is None or time.monotonic() - catalog.connected_at > SHARED_SECONDS:
        with translate_errors(settings, what):
            catalog = _catalog(settings, properties)
        _catalogs[key] = catalog
    return catalog


def _log_query(identifier: Identifier, token: str | None) -> dict[str, Any]:
    key = json.dumps(".".join(identifier))
    query = {"fetch": "ALL", "filter": f"operations.exists(op, op.key == {key})"}
    return query | {"max-records": str(PAGE)} | ({"page-token": token} if token else {})


def _catalog(settings: CatalogConnection, properties: dict[str, Any]) -> TableCatalog:
    if isinstance(settings, BucketConnection):
        files = REMOTE_FILES if settings.on_s3 else {}
        return BucketCatalog("dataflow", settings, **properties, **files)
    if isinstance(settings, NessieConnection):
        return NessieCatalog("dataflow", settings, **properties)
    return BoundedCatalog("dataflow", **properties)


_catalogs: WeakValueDictionary[tuple[int, str], TableCatalog] = WeakValueDictionary()
