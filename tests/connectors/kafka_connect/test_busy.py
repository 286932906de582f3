"""For how long a task that delivers nothing may be busy: by the connector's own settings."""

from __future__ import annotations

import time

import pytest

from dataflow_assets.connectors.kafka_connect.host.busy import Busy


@pytest.mark.parametrize(
    ("config", "started", "failed"),
    [
        ({}, 0, 30),
        ({"retriable.restart.connector.wait.ms": "60000"}, 0, 80),
        ({"slot.max.retries": "0"}, 5, 30),
        ({"slot.max.retries": "6"}, 65, 90),
        ({"slot.max.retries": "100", "slot.retry.delay.ms": "200"}, 25, 50),
        ({"slot.max.retries": "many"}, 5, 30),
    ],
)
def test_a_pause_of_the_connector_is_no_quiet(
    config: dict[str, str], started: int, failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1_000.0)
    busy = Busy(config)
    assert busy.until == 1_000 + started
    busy.note_failure()
    assert busy.until == 1_000 + failed
    busy.note_delivery()
    assert busy.until == 0
