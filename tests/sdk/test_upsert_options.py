"""Options that exclude or require each other, declared once for every sink of table rows."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from dataflow_assets import registry
from dataflow_assets.sdk.upsert_options import SoftDeleteOptions, UpsertOptions

DATABASE = {"connectionString": "http://u:p@h:8123/d", "table": "orders"}
CATALOG = {"catalogURI": "http://h:8181", "namespace": "shop", "table": "orders"}
COORDINATOR = {"serverURL": "http://h:8080", "catalog": "c", "schema": "s", "table": "orders"}
BRANCH = {"baseURL": "http://h:19120", "namespace": "shop", "table": "orders"}
SCHEMA = {"host": "h", "database": "d", "user": "u", "password": "p", "table": "orders"}
PLACES = {"iceberg": CATALOG, "nessie": BRANCH, "trino": COORDINATOR, "mysql": SCHEMA}
SINKS = [sink for sink in registry.sinks().values() if issubclass(sink, UpsertOptions)]
FLAT = {"upsertMode": True, "rawMode": True, "flattenMetadataColumns": True}
SOFT = [sink for sink in SINKS if issubclass(sink, SoftDeleteOptions)]


def findings(sink: type[UpsertOptions], options: dict[str, Any]) -> list[str]:
    try:
        sink.model_validate({**PLACES.get(sink.type, DATABASE), **options})
    except ValidationError as error:
        found = error.errors(include_url=False)
        return [f"{'.'.join(map(str, e['loc']))}: {e['ctx']['error']}" for e in found]
    return []


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"deleteMode": "hard"}, "deleteMode: deleteMode requires upsertMode: true"),
        ({"flattenMetadataColumns": True}, ": flattenMetadataColumns requires rawMode: true"),
        (
            {"upsertMode": True, "conflictKey": ["a", "a"]},
            "conflictKey: conflictKey names a column twice",
        ),
        (
            FLAT | {"conflictKey": "key", "flattenMetadataColumnsPrefix": "m_"},
            ": conflictKey names columns of metadata, which all begin with m_ here",
        ),
    ],
)
def test_what_does_not_fit_together_is_a_finding(
    sink: type[UpsertOptions], options: dict[str, Any], finding: str
) -> None:
    (found,) = findings(sink, options)
    assert found.endswith(finding)


@pytest.mark.parametrize("sink", SOFT)
def test_a_key_is_no_mark(sink: type[UpsertOptions]) -> None:
    """A delete would give the row another key, and the next one would not find it."""
    options = {"upsertMode": True, "conflictKey": ["id", "at"], "softDeleteColumn": "at"}
    (found,) = findings(sink, options)
    assert found.endswith("softDeleteColumn is a column of conflictKey: take another one")


@pytest.mark.parametrize("sink", SOFT)
def test_all_that_is_missing_is_reported_at_once(sink: type[UpsertOptions]) -> None:
    found = findings(sink, {"deleteMode": "soft", "flattenMetadataColumns": True})
    assert set(found) == {
        "flattenMetadataColumns: flattenMetadataColumns requires rawMode: true",
        "deleteMode: deleteMode requires upsertMode: true",
        "deleteMode: deleteMode soft requires softDeleteColumn",
    }


@pytest.mark.parametrize("sink", SINKS)
def test_a_key_may_be_one_text(sink: type[UpsertOptions]) -> None:
    assert findings(sink, {"upsertMode": True, "conflictKey": "id"}) == []
