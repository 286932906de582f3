"""`dataflow_assets.testing`: a manifest's steps as a function."""

from __future__ import annotations

import subprocess
import sys
import timeit
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from dataflow_assets.errors import ManifestError, PermanentError
from dataflow_assets.testing import NotJson, Out, Rejected, Result, steps_of
from tests import ROOT

NOW = datetime(2026, 7, 20, 10, tzinfo=UTC)
FLOW = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {{name: {name}}}
spec:
  source:
    type: kafka
    config: {{brokersSecretRef: {{name: nowhere, key: brokers}}, topic: t, consumerGroup: g}}
  sink:
    type: postgresql
    config: {{connectionStringSecretRef: {{name: nowhere, key: dsn}}, table: {name}}}
  transformations: {steps}
"""
CAST = "[{type: remove, config: {fields: [x]}}, {type: cast, config: {spec: {a: int64}}}]"
INSERT = '[{type: insertField, config: {fields: {at: "${now}", k: "${metadata.key}"}}}]'
ROUTER = """[{type: flatten, config: {field: rows}}, {type: router, config: {routes: [{
    condition: "$.rows == '2'", sink: {type: postgresql, config: {connectionString:
    'postgresql://u@h/d', table: two}}}]}}]"""


def manifest(folder: Path, steps: str, name: str = "orders") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(FLOW.format(name=name, steps=steps))
    return path


def test_what_comes_out_compares_with_plain_values(tmp_path: Path) -> None:
    run = steps_of(manifest(tmp_path, CAST))
    assert run({"a": "7", "x": 1, "b": 0.1}).bodies == [{"a": 7, "b": Decimal("0.1")}]
    assert run({"a": 1.0}, metadata={"key": "k"}) == Result((Out({"a": 1}, {"key": "k"}),))


def test_digits_and_the_order_of_keys_survive(tmp_path: Path) -> None:
    (out,) = steps_of(manifest(tmp_path, CAST))(b'{"z":1.10,"x":0,"b":123456789012345678901}').out
    assert out.text == b'{"z":1.10,"b":123456789012345678901}'


def test_a_rejected_record_names_the_step_and_its_reason(tmp_path: Path) -> None:
    found = steps_of(manifest(tmp_path, CAST))({"a": "x"})
    reason = "a: must be a whole number of 64 bits"
    assert found == Result(rejected=Rejected(1, "cast", reason))
    assert not found.is_filtered


def test_json_that_cannot_be_kept_is_rejected_before_the_steps(tmp_path: Path) -> None:
    run = steps_of(manifest(tmp_path, CAST))
    rejected = run('{"a": "\\ud800"}').rejected
    assert rejected is not None
    assert (rejected.step, rejected.type) == (None, "decode")
    assert "lone surrogate" in rejected.reason
    assert run(b"\xff").rejected == Rejected(None, "decode", "invalid UTF-8 at byte 0")


def test_text_is_the_message_and_none_is_a_null_message(tmp_path: Path) -> None:
    run = steps_of(manifest(tmp_path, CAST))
    assert run("hello").bodies == [NotJson(b"hello")]
    assert run(None).bodies == [NotJson(None)]
    assert run("null").bodies == [None]
    assert run('"hello"').bodies == ["hello"]
    assert run([1, "x"]).bodies == [[1, "x"]]


def test_the_time_can_be_fixed(tmp_path: Path) -> None:
    run = steps_of(manifest(tmp_path, INSERT), now=NOW)
    assert run({}, {"key": "a"}).bodies == [{"at": "2026-07-20T10:00:00Z", "k": "a"}]
    with pytest.raises(ValueError, match="a time with a zone"):
        steps_of(manifest(tmp_path, INSERT), now=NOW.replace(tzinfo=None))


def test_the_present_is_the_time_by_default(tmp_path: Path) -> None:
    (body,) = steps_of(manifest(tmp_path, INSERT))({}).bodies
    assert abs(datetime.now(UTC) - datetime.fromisoformat(body["at"])).total_seconds() < 60


def test_filtered(tmp_path: Path) -> None:
    run = steps_of(manifest(tmp_path, "[{type: filter, config: {condition: $.a}}]"))
    assert run({"a": 1}) == Result((Out({"a": 1}),))
    assert run({"a": 0}) == Result()
    assert run({"a": 0}).is_filtered


def test_several_records_and_their_routes(tmp_path: Path) -> None:
    found = steps_of(manifest(tmp_path, ROUTER))({"rows": [1, 2]})
    condition = "$.rows == '2'"
    assert [one.route for one in found.out] == [None, condition]
    assert found.out[1] == Out({"rows": 2}, {"routed_condition": condition}, condition)


def test_calls_are_the_records_of_one_micro_batch(tmp_path: Path) -> None:
    path = manifest(tmp_path, "[{type: dedupe, config: {key: [id]}}]")
    run = steps_of(path)
    assert [run({"id": n}).is_filtered for n in (1, 2, 1)] == [False, False, True]
    assert not steps_of(path)({"id": 1}).is_filtered


def test_one_of_several_flows(tmp_path: Path) -> None:
    manifest(tmp_path, CAST, "one")
    manifest(tmp_path, "[]", "two")
    assert steps_of(tmp_path, "two")({"x": 1}).bodies == [{"x": 1}]
    assert steps_of(tmp_path, "default/one")({"x": 1}).bodies == [{}]
    with pytest.raises(PermanentError, match=r"which flow is meant; .*: default/one, default/two"):
        steps_of(tmp_path)
    with pytest.raises(PermanentError, match=r"which flow three is; .*: default/one, default/two"):
        steps_of(tmp_path, "three")


def test_a_manifest_with_mistakes(tmp_path: Path) -> None:
    path = manifest(tmp_path, "[{type: cast, config: {spec: {a: int65}}}]")
    with pytest.raises(ManifestError, match=r"orders\.yaml:\d+:\d+: spec\.transformations"):
        steps_of(path)
    manifest(tmp_path, CAST, "other")
    assert steps_of(tmp_path, "other")({"x": 1}).bodies == [{}], "others do not matter"


def test_a_call_takes_microseconds(tmp_path: Path) -> None:
    run = steps_of(manifest(tmp_path, CAST))
    rounds = 2_000
    best = min(timeit.repeat(lambda: run({"a": "7", "x": 1}), number=rounds, repeat=5)) / rounds
    assert best < 200e-6, f"{best * 1e6:.0f} microseconds"


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    path = manifest(tmp_path, CAST)
    heavy = "pyspark", "pyiceberg", "dagster", "confluent_kafka", "rich"
    code = (
        "import sys; from dataflow_assets.testing import steps_of; "
        f"steps_of({str(path)!r})({{}}); print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_example_is_a_test_that_passes() -> None:
    command = [sys.executable, "-m", "pytest", "examples/test_orders_with_steps.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
