"""The PostgreSQL sink of flows that are declared in JustOne's properties."""

from __future__ import annotations

from typing_extensions import override

from dataflow_assets.connectors.postgresql.pool import lend
from dataflow_assets.connectors.postgresql.sink.sink import LoginSink
from dataflow_assets.contracts import Positions, Run, SinkSession, Target
from dataflow_assets.errors import PermanentError
from dataflow_assets.languages.justone.postgresql.session import JustOneSession
from dataflow_assets.languages.promises import ShowsInheritance
from dataflow_assets.sdk.server_failure import translate_errors


class JustOneSink(LoginSink, ShowsInheritance):
    """Appends text to the listed columns of a table, which PostgreSQL parses.

    Made by the manifest language `justone`; DataFlow manifests do not name it.
    """

    names: tuple[str, ...]
    """The columns that are written."""

    @override
    def open(self, target: Target, run: Run) -> SinkSession:
        return JustOneSession(self, self.names, target, run)

    @override
    def inheritance(self, target: Target) -> Positions | None:
        from dataflow_assets.languages.justone.postgresql import state_table

        with (
            translate_errors(f"reading JustOne's state of {self.address()}"),
            lend(self.dsn()) as link,
        ):
            offsets = state_table.stored_offsets(link, *self.place(), target.source)
        return {str(partition): offset for partition, offset in sorted(offsets.items())} or None

    @override
    def no_table(self) -> PermanentError:
        return PermanentError(
            f"table {'.'.join(self.place())} does not exist at {self.address()}: create it, or "
            "correct db.schema and db.table"
        )
