"""Only what is not true any more is written to the API server, by however many processes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dataflow_assets.assets.standings import Standing
from dataflow_assets.errors import Finding, TransientError
from dataflow_assets.kubernetes.objects import CustomResource
from dataflow_assets.kubernetes.outcome import describe
from dataflow_assets.kubernetes.reports import release, report
from dataflow_assets.secrets.cluster_api import Answer
from tests.kubernetes.objects import flow, resource
from tests.kubernetes.stand_in import StandIn

ONE = resource(flow("s"))
NOW = datetime(2026, 1, 31, tzinfo=UTC)
MISTAKE = (Finding("f", 3, 4, "spec.sink", "is required"),)
INVALID = describe(ONE, None, MISTAKE, Standing(), NOW)


def test_a_mistake_is_told_once(api: StandIn) -> None:
    assert report(ONE, INVALID)
    (post, event_path, event), (patch, path, body) = api.written
    assert (post, event_path) == ("POST", "/api/v1/namespaces/shop/events")
    assert (event["type"], event["reason"]) == ("Warning", "InvalidManifest")
    assert event["message"] == "spec.sink: is required"
    assert event["involvedObject"]["uid"] == "uid-orders"
    assert (patch, path) == (
        "PATCH",
        "/apis/dataflow.dataflow.io/v1/namespaces/shop/dataflows/orders/status",
    )
    stored = CustomResource(ONE.resource, {**ONE.document, "status": body["status"]})
    assert not report(stored, describe(stored, None, MISTAKE, Standing(), datetime.now(UTC)))
    assert len(api.written) == 2


def test_a_second_process_says_the_same_under_the_same_name(api: StandIn) -> None:
    api.writes = [Answer(201, {}), Answer(200, {}), Answer(409, {}), Answer(200, {})]
    assert report(ONE, INVALID)
    assert report(ONE, INVALID)
    first, second = (event["metadata"]["name"] for _, _, event in api.written[::2])
    assert first == second


def test_an_object_that_is_gone_meanwhile_is_no_error(api: StandIn) -> None:
    api.writes = [Answer(404, {})] * 2
    assert report(ONE, INVALID)


def test_a_refusal_is_an_error(api: StandIn) -> None:
    api.writes = [Answer(403, {"message": "cannot create events"})]
    with pytest.raises(TransientError, match="refused by the Kubernetes API: 403 cannot create"):
        report(ONE, INVALID)


def test_finalizers_of_the_operator_are_taken_off(api: StandIn) -> None:
    own, other = "dataflow.dataflow.io/finalizer", "example.com/backup"
    one = resource(flow("s"), finalizers=[own, other], resourceVersion="5")
    assert release(one)
    assert api.written[0][2] == {"metadata": {"finalizers": [other], "resourceVersion": "5"}}
    assert not release(resource(flow("s"), finalizers=[other]))
    assert not release(ONE)
