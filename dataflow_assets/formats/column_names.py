"""Which column of a target a name means: its own, or the one that has other capitals alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pyarrow as pa

from dataflow_assets.errors import PermanentError, RejectedRecord


class ColumnNames:
    """The columns of one target, found by names in any case; made once per task."""

    def __init__(self, columns: Iterable[str]) -> None:
        self._known = dict[str, str]()
        self._alike = defaultdict[str, list[str]](list)
        for name in columns:
            self._known[name] = name
            self._alike[name.casefold()].append(name)

    def column(self, name: str) -> str | None:
        """The column of a name: the exact one, else the only one that differs in case alone.

        Called for each key of a record that is none of a column.

        Returns:
            None where no column is meant.

        Raises:
            RejectedRecord: several columns could be meant.
        """
        if name in self._known:
            return self._known[name]
        alike = self._alike.get(name.casefold(), [])
        if len(alike) > 1:
            raise RejectedRecord(
                "decode",
                f"the key {name!r} may mean the columns {' and '.join(sorted(alike))}, which "
                "differ in case alone: name one of them exactly",
            )
        return alike[0] if alike else None

    def rename(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the target's names for the columns that mean them.

        Called inside tasks, for each batch of typed rows.

        Raises:
            PermanentError: a column may mean several, or two mean one.
        """
        try:
            names = [self.column(name) or name for name in batch.schema.names]
        except RejectedRecord as error:
            raise PermanentError(error.reason.replace("the key", "the source's column")) from None
        for name in names:
            if names.count(name) > 1:
                pairs = zip(batch.schema.names, names, strict=True)
                matching = [old for old, new in pairs if new == name]
                raise PermanentError(
                    f"the source's columns {' and '.join(matching)} both mean the column {name}: "
                    "leave one of them out"
                )
        return batch.rename_columns(names)
