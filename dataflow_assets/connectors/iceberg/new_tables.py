"""New tables of a catalog with the field ids that a file declares, in the folder that it names.

The request `createTable` gives fields new ids, in PyIceberg's client as in servers. A commit that
makes the table of nothing keeps the ids, as does a metadata file that is registered; each catalog
knows one of the two.
"""

from __future__ import annotations

import json
import re

from pyiceberg import exceptions as ice
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    AssignUUIDUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.typedef import Identifier

from dataflow_assets.connectors.iceberg.hint import COPY, HINT
from dataflow_assets.connectors.iceberg.metadata_files import in_folder
from dataflow_assets.connectors.iceberg.table_catalog import TableCatalog
from dataflow_assets.errors import PermanentError

_OURS = re.compile(rf"v\d+\.metadata\.json|{COPY}\d\d\.metadata\.json|{re.escape(HINT)}")
"""What flows leave beside a table: without a catalog, and behind the commits of one."""
_NO_SNAPSHOT = -1
_NEWEST = -1  # what the change before has added


def check_free(catalog: TableCatalog, identifier: Identifier, io: FileIO, location: str) -> None:
    """Looks whether files of a table are in the folder of a table that is about to be made.

    Its hint may be lost, so that all files are looked at which flows leave beside tables.

    Raises:
        TableAlreadyExistsError: the catalog knows the table by now; somebody was quicker.
        PermanentError: the catalog does not know it.
    """
    if not any(_OURS.fullmatch(one.base_name) for one in in_folder(io, f"{location}/metadata")):
        return
    if catalog.table(identifier) is not None:
        raise ice.TableAlreadyExistsError(f"{'.'.join(identifier)} exists")
    raise PermanentError(
        f"{location} holds a table of a flow that had no catalog, or another one: move the "
        "folder away, choose another prefix, or take the catalog out again"
    )


def creating(metadata: TableMetadata) -> tuple[TableUpdate, ...]:
    """The changes of a commit that makes the table of nothing."""
    schema = {"schema": metadata.schema(), "last-column-id": metadata.last_column_id}
    return (
        AssignUUIDUpdate(uuid=metadata.table_uuid),
        UpgradeFormatVersionUpdate.model_validate({"format-version": metadata.format_version}),
        AddSchemaUpdate.model_validate(schema),
        SetCurrentSchemaUpdate.model_validate({"schema-id": _NEWEST}),
        AddPartitionSpecUpdate(spec=metadata.spec()),
        SetDefaultSpecUpdate.model_validate({"spec-id": _NEWEST}),
        AddSortOrderUpdate.model_validate({"sort-order": metadata.sort_orders[0]}),
        SetDefaultSortOrderUpdate.model_validate({"sort-order-id": _NEWEST}),
        SetLocationUpdate(location=metadata.location),
    )


def write_metadata(io: FileIO, metadata: TableMetadata) -> str:
    """Writes the file to register; its path. Nessie asks for a current snapshot, be it none."""
    path = f"{metadata.location}/metadata/00000-{metadata.table_uuid}.metadata.json"
    content = json.loads(metadata.model_dump_json(exclude_none=True))
    with io.new_output(path).create() as file:
        file.write(json.dumps({**content, "current-snapshot-id": _NO_SNAPSHOT}).encode())
    return path


def check_created(catalog: TableCatalog, made: Table, metadata: TableMetadata) -> None:
    """Looks whether a catalog has made a table as it was to be made.

    Args:
        catalog: that has made it.
        made: as the catalog has answered. Only that is judged: somebody else may have changed the
            table since, and what is changed is not dropped.
        metadata: as it was to be made.

    Raises:
        PermanentError: the catalog has given the fields other ids; the table is dropped again.
    """
    if made.schema().as_struct() == metadata.schema().as_struct():
        return
    now = catalog.table(made.name())
    if now is not None and now.metadata_location == made.metadata_location:
        catalog.drop_table(made.name())
    raise PermanentError(
        "the catalog gives the fields of a table other ids than the file declares: use a catalog "
        "that keeps them, such as Nessie, or none"
    )
