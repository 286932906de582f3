"""A hint for readers that know only the folder of a table that a catalog keeps.

`metadata/version-hint.text` names a copy of the newest metadata beside it: where a catalog keeps
its own, and under which name, is its affair.
"""

from __future__ import annotations

import logging

from pyiceberg import exceptions as ice
from pyiceberg.table import Table

from dataflow_assets.connectors.iceberg.errors import GONE, LOST

log = logging.getLogger(__name__)

HINT = "version-hint.text"
COPY = "synced-"
"""The first letters of the names of copies, which end with two digits."""
_ROUNDS = 10  # of looks at the table; who commits meanwhile leaves a hint as well
_COPIES = 100
"""Names are used again after so many commits: a reader has long read what the hint named."""


def leave(table: Table) -> None:
    """Leaves copy and hint behind a commit. Called on the driver; one that is late is a warning.

    A process may be paused here while others commit, so each looks at the table again behind its
    own writing: of several that write at the same time, the last one leaves the newest. Where the
    process dies before that, readers by path see the table as it was, until the next commit.
    """
    try:
        for _ in range(_ROUNDS):
            at = f"{table.location()}/metadata"
            name = f"{COPY}{table.metadata.next_sequence_number() % _COPIES:02}"
            text = table.metadata.model_dump_json(exclude_none=True)
            _write(table, f"{at}/{name}.metadata.json", text)
            _write(table, f"{at}/{HINT}", name)
            newest = table.catalog.load_table(table.name())
            if (
                table.metadata_location == newest.metadata_location
                or table.metadata == newest.metadata
            ):
                return
            table = newest
    except (*LOST, ice.RESTError, *GONE) as error:
        log.warning("%s: its %s is late: %s", table.location(), HINT, error)
    else:
        log.warning("%s: its %s is late: others commit all the time", table.location(), HINT)


def _write(table: Table, path: str, text: str) -> None:
    with table.io.new_output(path).create(overwrite=True) as file:
        file.write(text.encode())
