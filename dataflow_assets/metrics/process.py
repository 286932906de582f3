"""The recorder of this process, with all that its environment asks for."""

from __future__ import annotations

import logging
import os
from functools import cache

from dataflow_assets.metrics.recorder import Recorder
from dataflow_assets.metrics.store import store

_OTLP = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
)

log = logging.getLogger(__name__)


def recorder() -> Recorder:
    """That of this process; made by the first flow that runs in it."""
    return _recorder_of(os.getpid())


@cache
def _recorder_of(process: int) -> Recorder:
    del process
    made = Recorder(store())
    made.start()
    if any(map(os.environ.get, _OTLP)) and os.environ.get("OTEL_SDK_DISABLED") != "true":
        _export(made)
    return made


def _export(own: Recorder) -> None:
    try:
        from dataflow_assets.metrics import otlp  # an extra, which few need
    except ImportError as error:
        log.warning("nothing is exported to OpenTelemetry (%s): install the extra", error)
        return
    otlp.start(own)
