"""Errors of the engine as people meet them in Dagster: one sentence, without secrets."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from dataflow_assets.assets.run_log import Context
from dataflow_assets.assets.runs import Runs
from dataflow_assets.errors import DataflowError, TransientError
from dataflow_assets.flow import Flow
from dataflow_assets.micro_batch.tasks import JobDied
from dataflow_assets.runs.redaction import mask


@contextmanager
def failing(flow: Flow, context: Context) -> Iterator[None]:
    """Our errors as Dagster's: one sentence; permanent ones switch off every kind of retry.

    Around a run of one flow: of its own job, or a replay. The run's tags keep the reason, by which
    the sensor `ingest` decides when to try again.

    Raises:
        dagster.Failure: in place of whatever was raised inside.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - raised again, as one sentence
        permanent = isinstance(error, DataflowError) and not isinstance(error, TransientError)
        text = mask(sentence(error), [flow])
        if not isinstance(error, DataflowError):
            # not log.exception: that would show the traceback unmasked
            context.log.error(mask(traceback.format_exc(), [flow]))  # noqa: TRY400
        suspended = error.suspended if isinstance(error, DataflowError) else ()
        Runs(context.instance, flow).fail(context.run.run_id, text, suspended, permanent=permanent)
        # From None: the chain may show what a client library thinks fit, secrets included.
        raise dg.Failure(description=text, allow_retries=not permanent) from None


def sentence(error: BaseException) -> str:
    """Returns what a person reads of an error; secrets are still in it, see `mask`."""
    if isinstance(error, DataflowError):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}"


def may_pass(error: BaseException) -> bool:
    """True where a server may have been the cause; where a job died, the flow itself may be."""
    died = any(isinstance(one, JobDied) for one in (error, error.__cause__))
    return isinstance(error, TransientError) and not died
