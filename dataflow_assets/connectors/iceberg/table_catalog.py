"""The connector's questions to a catalog, whatever kind it is."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from contextlib import suppress

from pyiceberg import exceptions as ice
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests import HTTPError

from dataflow_assets.connectors.iceberg.errors import GONE
from dataflow_assets.errors import TransientError

CONFLICTS = 30  # changes of others to give way to, one after the other
_CONFLICT = 409  # HTTP


class TableCatalog(Catalog, ABC):
    """A catalog of PyIceberg with the verbs that sinks, sources and maintenance share."""

    connected_at: float
    """When it was made, by `time.monotonic`."""

    def table(self, identifier: Identifier) -> Table | None:
        """The table as it is now; None where it or its namespace is missing."""
        with suppress(*GONE):
            loaded: Table = self.load_table(identifier)
            return loaded
        return None

    def make(
        self,
        identifier: Identifier,
        schema: Schema,
        properties: dict[str, str],
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        order: SortOrder = UNSORTED_SORT_ORDER,
    ) -> Table:
        """A new table; the one that is there where somebody was quicker."""
        try:
            new: Table = self.create_table(
                identifier, schema, partition_spec=spec, sort_order=order, properties=properties
            )
        except ice.TableAlreadyExistsError:
            new = self.load_table(identifier)
        return new

    @abstractmethod
    def first(self, identifier: Identifier, metadata: TableMetadata) -> Table:
        """A new table with the very metadata, field ids and location included.

        Called on the driver, once in the life of a table whose columns are declared.

        Raises:
            TableAlreadyExistsError: somebody was quicker.
            PermanentError: the catalog gives other ids.
        """

    def change_namespace(
        self,
        namespace: Identifier,
        removals: set[str] | None = None,
        updates: Properties = EMPTY_DICT,
    ) -> None:
        """Sets and removes properties; again where somebody else has changed others meanwhile.

        Raises TransientError where that happens again and again.
        """
        for _ in range(CONFLICTS):
            try:
                self.update_namespace_properties(namespace, removals, updates)
            except ice.RESTError as error:
                if not _is_conflict(error):
                    raise
                time.sleep(random.uniform(0.02, 0.5))  # noqa: S311 - spreads writers
            else:
                return
        raise TransientError(f"namespace {'.'.join(namespace)} is changed by too many at once")

    def begin(self, table: Table) -> Table:
        """The table as it can be committed to; called once by whoever is about to write."""
        return table


def _is_conflict(error: ice.RESTError) -> bool:
    answer = error.__cause__.response if isinstance(error.__cause__, HTTPError) else None
    return answer is not None and answer.status_code == _CONFLICT
