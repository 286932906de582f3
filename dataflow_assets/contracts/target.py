"""One branch as its sink sees it, and what becomes of records that it cannot store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from dataflow_assets.contracts.connector import Address
from dataflow_assets.contracts.entries import ErrorSink
from dataflow_assets.errors import PermanentError


@dataclass(frozen=True)
class Rejects:
    """What happens to a record that cannot be stored.

    `table`: it lands beside the target, in the same commit. `errors`: in the error sink, before
    the commit. `skip`: it is counted and logged. `fail`: the run stops at it. `holds`: it lands in
    the error sink, and the run stops at it all the same.
    """

    way: Literal["table", "errors", "skip", "fail"] = "table"
    sink: ErrorSink | None = None
    holds: bool = False
    connection: str | None = None
    """What the error sink's connection is called in this location."""

    @property
    def address(self) -> Address | None:
        """Returns where the error sink is.

        Returns:
            Its address under the connection's name in this location; None without an error sink.
        """
        if self.sink is None:
            return None
        address = self.sink.address()
        return replace(address, connection=self.connection) if self.connection else address


@dataclass(frozen=True)
class Target:
    """One branch of one flow as its sink sees it."""

    flow: str  # namespace/name
    branch: str  # stable identity of the branch within the flow
    manifest: str  # hash of the manifest's content
    source: str  # name of the topic or table read, for messages and rejected records
    source_id: str = ""  # its identity: offsets of a recreated topic are other records
    rejects: Rejects = field(default=Rejects(), repr=False, compare=False)
    reading: int = field(default=0, compare=False)  # `Checkpoint.reading`, set for tasks

    @property
    def id(self) -> str:
        """By which the checkpoint of the branch is found.

        Returns:
            Flow and branch as one key.
        """
        return f"{self.flow}:{self.branch}"


def refuse_shared(target: Target, place: Address, others: Mapping[str, str]) -> None:
    """Refuses to empty a table that other flows write into: their rows would go as well.

    Called by `SinkSession.restart` for `table: truncate`, on the driver.

    Args:
        target: the branch whose table is to be emptied.
        place: of the table.
        others: by the name of each other flow with a checkpoint about this table, what a person
            runs to remove that checkpoint.

    Raises:
        PermanentError where there are other flows.
    """
    if not others:
        return
    removals = "; ".join(others.values())
    raise PermanentError(
        f"flow {target.flow}: table: truncate would also take out the rows of "
        f"{', '.join(others)}: the checkpoint says that these rows are in {place} as well. Nothing "
        f"was changed. If the other flow is to begin again too, run dataflow reset for it first. "
        f"Else delete the rows of {target.flow} by hand, and start with table: keep and confirm "
        f"(dataflow run --table keep --yes). If the other flow no longer exists, remove what is "
        f"left of its checkpoint: {removals}"
    )
