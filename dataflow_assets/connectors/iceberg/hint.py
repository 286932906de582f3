"""What readers that know the folder of a table alone look for, of a table that a catalog keeps.

`metadata/version-hint.text` names a copy of the newest metadata beside it: where a catalog keeps
its own, and under which name, is its affair.
"""

from __future__ import annotations

import logging

from pyiceberg.table import Table

log = logging.getLogger(__name__)

HINT = "version-hint.text"
_COPIES = 100
"""Names are used again after so many commits: a reader has long read what the hint named."""


def leave(table: Table) -> None:
    """Leaves copy and hint behind a commit. Called on the driver; one that is late is a warning.

    Where the process dies before this, readers by path see the table as it was, until the next one.
    """
    folder = f"{table.location()}/metadata"
    name = f"synced-{table.metadata.next_sequence_number() % _COPIES:02}"
    try:
        text = table.metadata.model_dump_json(exclude_none=True)
        _write(table, f"{folder}/{name}.metadata.json", text)
        _write(table, f"{folder}/{HINT}", name)
    except OSError as error:
        log.warning("%s: its %s is late: %s", table.location(), HINT, error)


def _write(table: Table, path: str, text: str) -> None:
    with table.io.new_output(path).create(overwrite=True) as file:
        file.write(text.encode())
