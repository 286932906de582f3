"""The DataFlow kind, field by field: what is used, what is noted, what is refused, and where."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataflow_assets.contracts import Limit
from dataflow_assets.flow import Flow, asset_key
from dataflow_assets.languages.dataflow.model import DataFlowSpec, Maintenance, Manifest, Metadata
from dataflow_assets.manifests.load import Loaded, load
from dataflow_assets.schedules.maintenance_window import MaintenanceWindow
from dataflow_assets.secrets import SecretRef
from dataflow_assets.spec import Hint, Refused, marks

HEAD = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata:
  name: orders
"""
SPEC = """\
spec:
  source:
    type: memory-offsets
    config: {store: s, topic: t}
  sink:
    type: memory-slice
    config: {store: s, table: x}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("f.yaml")


def loaded(file: Path, text: str) -> Loaded:
    file.write_text(text)
    return load(file)


def said(file: Path, text: str) -> list[str]:
    return [str(finding).removeprefix("f.yaml:") for finding in loaded(file, text).findings]


def flow(file: Path, text: str) -> Flow:
    found = loaded(file, text)
    assert found.findings == ()
    return found.flows[0]


MINIMUM = HEAD + SPEC

BAD_SPEC = [
    (
        "  onRejected: skip\n  errors: {type: memory-slice, config: {store: s, table: bad}}",
        "12:3: spec.onRejected: is for flows without errors, which says where rejected records go",
    ),
    (
        "  errors: {type: memory-slice, config: {store: s, table: x}}",
        (
            "12:32: spec.errors.config: is a table that the flow itself writes: "
            "rejected records need one of their own"
        ),
    ),
    (
        "  errors: {type: snowflake, config: {a: 1}}",
        "12:18: spec.errors.type: unknown sink type; ",
    ),
    (
        "  maintenance: {startTime: '2026-01-01T00:00:00Z'}",
        "12:28: spec.maintenance.startTime: startTime requires duration",
    ),
    (
        "  maintenance: {repeat: daily}",
        "12:25: spec.maintenance.repeat: repeat requires startTime",
    ),
    (
        "  maintenance: {startTime: 2026-01-01T02:00:00, duration: 2h}",
        (
            "12:28: spec.maintenance.startTime: must be a time with its offset, such as "
            "2026-01-31T02:00:00+01:00"
        ),
    ),
    (
        "  maintenance: {startTime: 2026-01-01T02:00:00Z, duration: 2 hours}",
        ("12:60: spec.maintenance.duration: must be a duration above zero, like 500ms or 1m30s"),
    ),
    (
        "  maintenance: {startTime: 2026-01-01T02:00:00Z, duration: 0s}",
        ("12:60: spec.maintenance.duration: must be a duration above zero, like 500ms or 1m30s"),
    ),
    (
        "  maintenance: {startTime: 2026-01-01T02:00:00Z, duration: 2h, repeat: hourly}",
        (
            "12:72: spec.maintenance.repeat: is not one of the allowed values: daily, weekly, "
            "monthly"
        ),
    ),
    (
        "  maintenance: {startTime: 2026-01-01T02:00:00Z, duration: 2h, timezone: Berlin}",
        (
            "12:74: spec.maintenance.timezone: is not a time zone; write a name like "
            "Europe/Berlin, or +hh:mm"
        ),
    ),
    (
        "  maintenance: [{suspended: true}]",
        "12:16: spec.maintenance: must be a mapping, got a list: write `key: value`, without `- `",
    ),
    (
        "  suspended: true",
        "12:3: spec.suspended: unknown key; did you mean maintenance.suspended?",
    ),
    (
        "  ackGranularity: row",
        "12:19: spec.ackGranularity: is not one of the allowed values: batch, message",
    ),
    ("  replicas: -1", "12:13: spec.replicas: must be at least 0"),
    (
        "  replicas: '2'",
        "12:13: spec.replicas: must be a whole number, got text: remove the quotes",
    ),
    ("  transformWorkers: 65", "12:21: spec.transformWorkers: must be at most 64"),
    ("  maxRejectedPercent: 101", "12:23: spec.maxRejectedPercent: must be at most 100"),
    ("  max_rejected_percent: 1", "12:3: spec.max_rejected_percent: unknown key; "),
    (
        "  checkpointReset: 'true'",
        "12:20: spec.checkpointReset: must be true or false, got text: remove the quotes",
    ),
    (
        "  checkpointSaveInterval: 30",
        "12:27: spec.checkpointSaveInterval: must be text, got a number: put it in quotes",
    ),
    (
        "  checkpointSaveInterval: soon",
        "12:27: spec.checkpointSaveInterval: must be a duration such as 30s, 5m or 1h30m",
    ),
    (
        "  terminationGracePeriodSeconds: 5",
        "12:3: spec.terminationGracePeriodSeconds: unknown key; ",
    ),
]


@pytest.mark.parametrize(("line", "expected"), BAD_SPEC)
def test_refused_spec(file: Path, line: str, expected: str) -> None:
    (found,) = said(file, f"{MINIMUM}{line}\n")
    assert found == expected or (expected.endswith("; ") and found.startswith(expected))


BAD_ENDS = [
    (
        "memory-offsets",
        "kafkaa",
        "7:11: spec.source.type: unknown source type; did you mean kafka?",
    ),
    ("memory-offsets", "zzz", "7:11: spec.source.type: unknown source type; allowed: "),
    (
        "memory-slice",
        "postgresql-cdc",
        "10:11: spec.sink.type: postgresql-cdc is a source only; allowed: ",
    ),
    (
        "type: memory-slice",
        "typ: memory-slice",
        "10:5: spec.sink.typ: unknown key; did you mean type?",
    ),
    ("config: {store: s, table: x}", "config: {}", "11:13: spec.sink.config: must not be empty"),
    ("config: {store: s, table: x}", "config:", "11:5: spec.sink.config: is required, but "),
    (
        "config: {store: s, table: x}",
        "config: {store: s, tabel: x}",
        "11:24: spec.sink.config.tabel: unknown key; did you mean table?",
    ),
    (
        "config: {store: s, table: x}",
        "table: x",
        "11:5: spec.sink.table: unknown key; did you mean config.table?",
    ),
    (
        "type: memory-slice\n    config: {store: s, table: x}",
        "postgresql: {table: x}",
        (
            "10:5: spec.sink.postgresql: unknown key; the connector's name goes into type, "
            "its settings into config"
        ),
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), BAD_ENDS)
def test_refused_ends(file: Path, old: str, new: str, expected: str) -> None:
    found = said(file, MINIMUM.replace(old, new))
    assert any(finding.startswith(expected) for finding in found), found


KAFKA = """\
spec:
  source:
    type: kafka
    config: {brokers: [a:9092], topic: t}
  sink:
    type: postgresql
    config:
      connectionString: postgres://u:hunter2@h/db
      table: x
"""
ICEBERG = """\
spec:
  source:
    type: kafka
    config: {brokers: [a:9092], topic: t}
  sink:
    type: iceberg
    config:
      catalogURI: http://c:8181
      namespace: n
      table: x
"""
C = "spec.sink.config"
BAD_CONFIGS = [
    (KAFKA, "batchsize: 1", f"14:7: {C}.batchsize: unknown key; did you mean batchSize?"),
    (
        KAFKA,
        "upsertStrategy: replace",
        f"14:23: {C}.upsertStrategy: is not one of the allowed values: always, ifNewer",
    ),
    (
        KAFKA,
        "upsertMode: true\n      conflictKey: [id, 5]",
        f"15:25: {C}.conflictKey[1]: must be text, got a number: put it in quotes",
    ),
    (
        KAFKA,
        "upsertMode: true\n      conflictKey: [id, '']",
        (
            f"15:25: {C}.conflictKey[1]: must be the name of a column: not empty, and without the "
            "character NUL"
        ),
    ),
    (
        KAFKA,
        "upsertMode: true\n      upsertStrategy: ifNewer",
        f"15:23: {C}.upsertStrategy: upsertStrategy ifNewer requires upsertVersionColumn",
    ),
    (
        KAFKA,
        "rawMode: true\n      upsertMode: true",
        f"14:16: {C}.rawMode: rawMode with upsertMode needs conflictKey: ",
    ),
    (
        KAFKA,
        "flattenMetadataColumns: true",
        f"14:31: {C}.flattenMetadataColumns: flattenMetadataColumns requires rawMode: true",
    ),
    (
        ICEBERG,
        "rawMode: true\n      flattenMetadataColumnsPrefix: 1x",
        (
            f"16:37: {C}.flattenMetadataColumnsPrefix: must be letters, digits and _, "
            "not beginning with a digit"
        ),
    ),
    (
        KAFKA,
        "autoCreateTable: 'yes'",
        f"14:24: {C}.autoCreateTable: must be true or false, got text",
    ),
    (
        ICEBERG,
        "catalogURL: http://c",
        f"15:7: {C}.catalogURL: unknown key; did you mean catalogURI?",
    ),
    (ICEBERG, "auth: {}", f"15:7: {C}.auth: unknown key; did you mean "),
    (
        ICEBERG,
        "authenticationType: BEARER",
        f"15:27: {C}.authenticationType: authenticationType BEARER needs bearerToken",
    ),
    (ICEBERG, "bearerToken: 5", f"15:20: {C}.bearerToken: must be text, got a number"),
]


@pytest.mark.parametrize(("spec", "line", "expected"), BAD_CONFIGS)
def test_refused_configs(file: Path, spec: str, line: str, expected: str) -> None:
    (found,) = said(file, f"{HEAD}{spec}      {line}\n")
    assert found.startswith(expected), found
    assert "hunter2" not in found


def test_a_connection_string_that_cannot_be_read_is_a_finding(file: Path) -> None:
    (found,) = said(file, HEAD + KAFKA.replace("postgres://u:hunter2@h/db", "'hunter2 ;;'"))
    assert found.startswith(f"12:25: {C}.connectionString: "), found
    assert "hunter2" not in found


BAD_HEADS = [
    (
        "dataflow.dataflow.io/v1",
        "dataflow.dataflow.io/v2",
        "1:13: apiVersion: is not one of the allowed values: dataflow.dataflow.io/v1",
    ),
    ("kind: DataFlow", "kind: Dataflow", "2:7: kind: unknown kind; did you mean DataFlow?"),
    ("kind: DataFlow", "kind: [x]", "2:7: kind: unknown kind; allowed: DataFlow, DataFlowCron"),
    ("kind: DataFlow", "kind: DataFlowCron", "5:1: spec.schedule: is required"),
    ("kind: DataFlow\n", "", "1:1: kind: is required"),
    ("name: orders", "name: a/b", "4:9: metadata.name: "),
    ("name: orders", "nam: orders", "3:1: metadata.name: is required"),
    (
        "name: orders",
        "name: orders\n  annotations: {a: true}",
        "5:20: metadata.annotations.a: must be text, got a boolean",
    ),
    (
        "name: orders",
        "name: orders\n  annotations: {dataflow-assets/sink-conection: x}",
        (
            "5:17: metadata.annotations.dataflow-assets/sink-conection: unknown key; "
            "did you mean dataflow-assets/sink-connection?"
        ),
    ),
    (
        "name: orders",
        "name: orders\n  annotations: {dataflow-assets/owners: ' ,'}",
        "5:41: metadata.annotations.dataflow-assets/owners: must not be empty",
    ),
    (
        "name: orders",
        "name: orders\n  annotations: {dataflow-assets/lane: Slow_Ones}",
        (
            "5:39: metadata.annotations.dataflow-assets/lane: must be letters a-z, digits and `-`, "
            "without `-` at an end, at most 40"
        ),
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), BAD_HEADS)
def test_refused_heads(file: Path, old: str, new: str, expected: str) -> None:
    found = said(file, MINIMUM.replace(old, new))
    assert any(finding.startswith(expected) for finding in found), found


def test_replicas_above_one_need_kafka(file: Path) -> None:
    assert said(file, MINIMUM + "  replicas: 2\n") == [
        "12:13: spec.replicas: more than 1 needs a kafka source, not memory-offsets; allowed: 0, 1"
    ]


LAKE = """\
spec:
  source:
    type: iceberg
    config:
      {catalogURI: "http://c:8181", namespace: n, table: t, onSourceRewrite: rescan}
  sink:
    type: postgresql
    config: {connectionString: "postgresql://u@h/d", table: x}
"""


def test_rows_that_come_again_need_a_sink_that_upserts(file: Path) -> None:
    (found,) = said(file, HEAD + LAKE)
    assert found == (
        "12:5: spec.sink.config: is appended to, but the source reads rows again with "
        "onSourceRewrite: rescan: use a sink that upserts, or change that in the source"
    )
    assert said(file, HEAD + LAKE.replace("table: x}", "table: x, upsertMode: true}")) == []


def test_everything_wrong_is_said_at_once(file: Path) -> None:
    text = MINIMUM.replace("topic", "topik").replace("table", "tabel") + "  replica: 1\n"
    assert [finding.split(" ")[1] for finding in said(file, text)] == [
        "spec.source.config.topic:",
        "spec.source.config.topik:",
        "spec.sink.config.table:",
        "spec.sink.config.tabel:",
        "spec.replica:",
    ]


def test_what_is_used_arrives_in_the_flow(file: Path) -> None:
    text = (
        HEAD.replace("name: orders", "name: orders\n  namespace: shop\n  labels: {team: a}")
        + SPEC
        + "  maxRejectedPercent: 5\n  maxRecordsPerBatch: 10\n  maxBytesPerBatch: 20\n"
        + "  maintenance: {suspended: true}\n  checkpointReset: true\n"
    )
    found = flow(file, text)
    assert (found.id, found.slug, found.suspended) == ("shop/orders", "shop__orders", True)
    assert found.labels == {"team": "a"}
    assert found.policies.limit == Limit(10, 20)
    assert (found.policies.max_rejected_percent, found.policies.checkpoint_reset) == (5.0, True)
    assert found.policies.on_topic_recreated == "fail"


@pytest.mark.parametrize(
    ("lines", "way"),
    [
        ("", "fail"),
        ("  onRejected: table\n", "table"),
        ("  onRejected: skip\n", "skip"),
        ("  onRejected: fail\n", "fail"),
        ("  errors: {type: memory-slice, config: {store: s, table: bad}}\n", "errors"),
    ],
)
def test_without_an_error_sink_a_flow_stops_at_a_rejected_record(
    file: Path, lines: str, way: str
) -> None:
    assert flow(file, MINIMUM + lines).policies.rejects.way == way


@pytest.mark.parametrize(
    ("line", "suspended"),
    [
        ("", False),
        ("  replicas: 0", True),
        ("  replicas: 1", False),
        ("  maintenance: {suspended: true}", True),
        ("  maintenance: {suspended: no}", False),
    ],
)
def test_suspended(file: Path, line: str, suspended: bool) -> None:
    assert flow(file, f"{MINIMUM}{line}\n").suspended is suspended


def test_a_window_arrives_in_the_flow(file: Path) -> None:
    found = flow(
        file,
        MINIMUM + "  maintenance: {startTime: 2026-01-31T02:00:00+01:00, duration: 1h30m, "
        "repeat: monthly, timezone: Europe/Berlin, description: nightly}\n",
    )
    berlin = ZoneInfo("Europe/Berlin")
    assert found.maintenance == MaintenanceWindow(
        datetime(2026, 1, 31, 2, tzinfo=berlin), timedelta(hours=1.5), "monthly", berlin, "nightly"
    )
    assert not found.suspended
    inside = datetime(2026, 2, 28, 3, tzinfo=berlin)
    reason = "in maintenance window `nightly` until 03:30 Europe/Berlin"
    assert found.pause_reason(inside) == reason
    assert found.pause_reason(inside + timedelta(minutes=30)) == ""
    assert (
        replace(found, suspended=True).pause_reason(inside)
        == "suspended in its manifest (f.yaml:1)"
    )


@pytest.mark.parametrize(
    ("maintenance", "note"),
    [
        (
            "description: nightly",
            "description: for readers of the manifest only: there is no window",
        ),
        (
            "startTime: 2026-01-31T02:00:00Z, duration: 2h, timezone: Europe/Berlin",
            (
                "startTime: in Europe/Berlin, whose time the window follows, that is "
                "2026-01-31 03:00:00+01:00"
            ),
        ),
        (
            "startTime: 2026-01-31T02:00:00Z, duration: 25h, repeat: daily",
            "duration: the window never closes: it opens again before it closes",
        ),
    ],
)
def test_notes_of_a_window(file: Path, maintenance: str, note: str) -> None:
    found = loaded(file, f"{MINIMUM}  maintenance: {{{maintenance}}}\n")
    (hint,) = found.hints
    assert str(hint).endswith(f"spec.maintenance.{note}")


def annotated(**annotations: str) -> str:
    lines = "".join(f'    {name}: "{text}"\n' for name, text in annotations.items())
    return f"{HEAD}  annotations:\n{lines}{SPEC}"


def test_annotations(file: Path) -> None:
    names = {
        "dataflow-assets/source-connection": "stream",
        "dataflow-assets/sink-connection": "ware-house",
        "dataflow-assets/owners": "team:data, a@b.example",
        "dataflow.dataflow.io/reset-checkpoint": "true",
        "example.com/other": "x",
    }
    found = flow(file, annotated(**names))
    assert found.source_address.connection == "stream"
    assert asset_key(found.branches[0].address) == ("memory", "ware_house", "x")
    assert found.branches[0].id == "memory:x"
    assert found.owners == ("team:data", "a@b.example")
    assert found.policies.checkpoint_reset


def test_the_hash_follows_content_and_nothing_else(file: Path) -> None:
    plain = flow(file, MINIMUM).hash
    assert flow(file, f"# a note\n{MINIMUM}").hash == plain
    assert flow(file, MINIMUM.replace("store: s, topic: t", "topic: 't', store: s")).hash == plain
    assert flow(file, f"{MINIMUM}  errors:\n").hash == plain
    assert flow(file, MINIMUM.replace("name: orders", "name: other")).hash == plain
    assert flow(file, f"{MINIMUM}  replicas: 1\n").hash != plain
    by_field = flow(file, f"{MINIMUM}  checkpointReset: true\n").hash
    by_note = flow(file, annotated(**{"dataflow.dataflow.io/reset-checkpoint": "true"})).hash
    assert by_field == by_note != plain


HINTS: dict[str, Any] = {
    "replicas": 0,
    "checkpointPersistence": False,
    "checkpointSyncOnAck": True,
    "checkpointSaveInterval": "5s",
    "ackGranularity": "message",
    "collapseBatchOnMessageAck": False,
    "channelBufferSize": 500,
    "transformWorkers": 4,
    "resources": {"limits": {"cpu": "1"}},
    "nodeSelector": {"disk": "ssd"},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"key": "a"}],
    "processorImage": "x/y:1",
    "processorVersion": "1",
    "imagePullSecrets": [{"name": "a"}],
}


def test_every_hint_is_noted_at_its_key(file: Path) -> None:
    lines = [f"  {name}: {json.dumps(value)}" for name, value in HINTS.items()]
    found = loaded(file, MINIMUM + "\n".join(lines) + "\n")
    assert found.findings == ()
    assert [hint.path for hint in found.hints] == [f"spec.{name}" for name in HINTS]
    assert [(hint.line, hint.column) for hint in found.hints] == [
        (12 + number, 3) for number in range(len(HINTS))
    ]
    declared = DataFlowSpec.model_fields.values()
    assert set(HINTS) == {str(info.alias) for info in declared if marks(info, Hint)}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"{MINIMUM}  checkpointReset: true\n", "12:3: spec.checkpointReset"),
        (
            HEAD + "  annotations: {dataflow.dataflow.io/reset-checkpoint: 'true'}\n" + SPEC,
            "5:17: metadata.annotations.dataflow.dataflow.io/reset-checkpoint",
        ),
    ],
)
def test_a_reset_is_noted_for_the_next_edit_would_reset_again(
    file: Path, text: str, place: str
) -> None:
    (hint,) = loaded(file, text).hints
    assert str(hint).startswith(f"f.yaml:{place}: resets once, with the next run; remove it after")


STRICT = """\
spec:
  strictIdempotency: true
  source:
    {source}
  sink: {{type: postgresql, config: {{connectionString: "postgresql://u@h/d", table: x{main}}}}}
  transformations:
    - type: router
      config:
        routes:
          - condition: a == '1'
            sink: {{type: kafka, config: {{brokers: ['b:9092'], topic: x{route}}}}}
"""
POLLED = """type: postgresql
    config: {connectionString: "postgresql://u@h/d", table: y, changeTrackingColumn: at}"""
KEYED = ", upsertMode: true, conflictKey: id"


@pytest.mark.parametrize(
    ("main", "route", "paths"),
    [
        ("", "", ["spec.sink", "spec.transformations[0].config.routes[0].sink"]),
        (KEYED, "", ["spec.transformations[0].config.routes[0].sink"]),
        (", upsertMode: true", KEYED, ["spec.sink"]),
        (KEYED, KEYED, []),
    ],
)
def test_strict_idempotency_refuses_sinks_that_would_store_a_record_twice(
    file: Path, main: str, route: str, paths: list[str]
) -> None:
    text = HEAD + STRICT.format(source=POLLED, main=main, route=route)
    found = loaded(file, text)
    assert [finding.path for finding in found.findings] == paths
    assert all("which strictIdempotency refuses" in one.message for one in found.findings)
    assert loaded(file, text.replace("strictIdempotency: true", "strictIdempotency: false")).flows
    kafka = "{type: kafka, config: {brokers: ['b:9092'], topic: t, consumerGroup: g}}"
    assert loaded(file, HEAD + STRICT.format(source=kafka, main=main, route=route)).flows


def test_the_old_group_is_accepted_with_a_note(file: Path) -> None:
    found = loaded(file, MINIMUM.replace("dataflow.dataflow.io", "dataflow.oss.io"))
    assert len(found.flows) == 1
    assert [str(hint) for hint in found.hints] == [
        "f.yaml:1:13: apiVersion: an old name of dataflow.dataflow.io/v1"
    ]


QUERY = """\
spec:
  source:
    type: postgresql
    config: {connectionString: "postgresql://u@h/d", query: select 1}
  sink:
    type: postgresql
    config: {connectionString: "postgresql://u@h/d", table: x, upsertMode: true, conflictKey: id}
"""


def test_what_lanes_read_has_no_effect_on_a_flow_that_no_lane_drives(file: Path) -> None:
    named = HEAD.replace("metadata:\n", "metadata:\n  annotations: {dataflow-assets/lane: fast}\n")
    found = loaded(file, named + QUERY.replace("spec:\n", "spec:\n  freshness: 5\n"))
    places = ["metadata.annotations.dataflow-assets/lane", "spec.freshness"]
    assert [hint.path for hint in found.hints] == places
    for hint in found.hints:
        assert "has no effect: each run reads all rows of its source" in hint.message
    tracked = QUERY.replace("select 1", "select 1, changeTrackingColumn: at")
    assert loaded(file, named + tracked).hints == ()


ROUTED = """\
  transformations:
    - type: router
      config:
        routes:
          - condition: "$.a"
            sink:
              type: postgresql
              config: {connectionString: "postgresql://u@h/d", table: y}
"""


def test_a_query_that_is_read_again_for_one_sink_is_not_appended_by_another(file: Path) -> None:
    (found,) = said(file, HEAD + QUERY + ROUTED)
    assert "routes[0].sink.config: is appended to, but the source reads rows again" in found
    assert found.endswith(
        "with a query without changeTrackingColumn, as long as one sink of the flow upserts: "
        "use a sink that upserts, or change that in the source"
    )
    appended = QUERY.replace(", upsertMode: true, conflictKey: id", "")
    (hint,) = loaded(file, HEAD + appended + ROUTED).hints
    assert (hint.path, hint.message[:12]) == ("spec.source.config.query", "is read once")


def test_what_an_api_server_adds_is_accepted(file: Path) -> None:
    added = "name: orders\n  uid: x\n  resourceVersion: '1'\n  managedFields: [{a: 1}]"
    found = loaded(file, MINIMUM.replace("name: orders", added) + "status: {phase: Running}\n")
    assert len(found.flows) == 1
    assert len(found.hints) == 4


def test_every_field_has_a_verdict_and_a_sentence() -> None:
    for spec in (Manifest, Metadata, DataFlowSpec, Maintenance):
        for name, info in spec.model_fields.items():
            assert info.description, f"{spec.__name__}.{name} has no docstring"
            assert len(marks(info, Hint)) + len(marks(info, Refused)) <= 1


def test_secret_refs_belong_to_the_flow_s_namespace(file: Path) -> None:
    text = (
        MINIMUM.replace("type: memory-slice", "type: postgresql")
        .replace("{store: s, table: x}", "{connectionStringSecretRef: {name: a, key: b}, table: x}")
        .replace("name: orders", "name: orders\n  namespace: shop")
    )
    found = flow(file, text)
    assert found.secrets.namespace == "shop"
    ref = found.branches[0].sink.connection_string_secret_ref  # type: ignore[attr-defined]
    assert ref == SecretRef(name="a", key="b")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
PATHS = [line.strip().split(":")[0] for line in MINIMUM.splitlines()]


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(line=st.integers(0, len(PATHS) - 1), junk=JUNK)
def test_junk_anywhere_is_a_finding_or_fine_but_never_an_exception(
    file: Path, line: int, junk: object
) -> None:
    lines = MINIMUM.splitlines()
    indent = len(lines[line]) - len(lines[line].lstrip())
    following = [later for later in lines[line + 1 :] if len(later) - len(later.lstrip()) <= indent]
    changed = f"{lines[line].split(':')[0]}: {json.dumps(junk)}"
    found = loaded(file, "\n".join([*lines[:line], changed, *following]))
    assert len(found.flows) + len(found.findings) + len(found.hints) >= 1
