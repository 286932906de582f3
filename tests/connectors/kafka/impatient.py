"""Questions that a broker which is down never answers, given up sooner than those of a flow."""

from __future__ import annotations

import pytest

from dataflow_assets.connectors.kafka import client, create_topic, topics

SECONDS = 2.0  # for one question


def impatient(patch: pytest.MonkeyPatch) -> None:
    """Until the patch is undone; how long a flow waits is held by tests that do not call this."""
    for module in (client, create_topic, topics):
        patch.setattr(module, "TIMEOUT", SECONDS)
