"""Every row out of a table, for `table: truncate`: one DELETE under the checkpoint's condition.

Where there is no such DELETE a person empties the table. A driver that asked first and deleted then
could be late, and take out what the next driver has stored since.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.connectors.trino.errors import TrinoFailure
from dataflow_assets.connectors.trino.table.checkpoint_table import TrinoCheckpointTable
from dataflow_assets.connectors.trino.table.table import TrinoPlace
from dataflow_assets.errors import PermanentError


@dataclass(frozen=True)
class TrinoEmptying:
    """What a restart with `table: truncate` does to the table of one flow, on the driver.

    Methods raise Failure where Trino does not answer, and PermanentError for a table that has rows
    which the user or the catalog cannot delete like this.
    """

    client: TrinoClient
    flow: str
    place: TrinoPlace
    checkpoints: TrinoCheckpointTable

    def check(self) -> None:
        """Tries it; no row is deleted. Called before anything is stored about it.

        What is recorded as begun and cannot be ended would stop every later run, `reset` too.
        """
        self.delete(uuid.uuid4().hex)

    def delete(self, stamp: str) -> None:
        """Takes the rows out while the checkpoint's row has this stamp; else none."""
        condition = self.checkpoints.may_write(stamp)
        try:
            self.client.run(f"DELETE FROM {self.place.quoted_name} WHERE {condition}")  # noqa: S608 - quoted
        except TrinoFailure as failure:
            if failure.transient:
                raise
            if holds_rows(self.client, self.place):
                raise self._refusal(failure) from None

    def _refusal(self, failure: TrinoFailure) -> PermanentError:
        return PermanentError(
            f"flow {self.flow}: table: truncate cannot delete the rows of {self.place}: "
            f"{failure.reason}. Make sure that no run of the flow is left, empty the table by "
            "hand, and start again: an empty table is taken"
        )


def holds_rows(client: TrinoClient, place: TrinoPlace) -> bool:
    """Returns whether the table has a row. Raises Failure."""
    return bool(client.rows(f"SELECT 1 FROM {place.quoted_name} LIMIT 1"))  # noqa: S608 - quoted
