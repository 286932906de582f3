"""Notes for people what the sessions of pipelines' tables do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from dataflow_assets.contracts import Address
from dataflow_assets.errors import DataflowError, PermanentError
from dataflow_assets.sdk.server_failure import translate_errors

log = logging.getLogger(__name__)


@contextmanager
def noting(address: Address, flow: str) -> Iterator[None]:
    """A failure inside becomes a warning: what people are told must not stop what is stored.

    Used on the driver around each change of a pipeline's views.

    Args:
        address: of the pipeline's table.
        flow: its id.
    """
    try:
        with translate_errors(f"writing the views of {address}"):
            yield
    except DataflowError as error:
        log.warning("flow %s: %s", flow, error)


def kind_and_message(error: BaseException | None) -> tuple[str, str] | None:
    """The type and the message of an error that has ended an attempt, as the views show them.

    Returns:
        None for an end without an error, and for what is no error of the flow.
    """
    if not isinstance(error, DataflowError):
        return None
    kind = "permanent" if isinstance(error, PermanentError) else "transient"
    return kind, str(error)
