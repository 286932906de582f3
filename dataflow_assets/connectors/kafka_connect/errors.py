"""What the end of a connector's process means for the run."""

from __future__ import annotations

from typing_extensions import override

from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.sdk.server_failure import ServerFailure


class HostFailure(ServerFailure):
    """The process of a connector has ended. `lasting`: trying again is useless."""

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        self.lasting = lasting
        super().__init__(message)

    @override
    def error(self, what: str) -> DataflowError:
        kind = PermanentError if self.lasting else TransientError
        return kind(f"{what}: {self}")
