"""Several flows may write into one table: what empties it must not take out the others' rows."""

from __future__ import annotations

from collections.abc import Mapping

from dataflow_assets.contracts.address import Address
from dataflow_assets.contracts.tasks import Target
from dataflow_assets.errors import PermanentError


def refuse_shared(target: Target, place: Address, others: Mapping[str, str]) -> None:
    """Raises PermanentError where a table that is to be emptied is the target of other flows.

    `others`: by the name of the flow, what a person runs to remove its checkpoint.
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
