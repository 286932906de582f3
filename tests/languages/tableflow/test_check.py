"""`dataflow check` holds a file against the stored tables: what is refused, by its line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import devservers
from dataflow_assets.cli import main
from dataflow_assets.errors import PermanentError
from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.manifests.stored_tables import compare
from dataflow_assets.runs.request import Report
from tests.languages.tableflow.files import Bucket, Tableflow

ID: dict[str, Any] = {"name": "id", "id": 3, "type": "int"}
NAME: dict[str, Any] = {"name": "name", "id": 7, "type": "string", "optional": True}
INNER: dict[str, Any] = {"name": "at", "id": 9, "type": "float", "optional": True}
PLACE: dict[str, Any] = {"name": "place", "id": 8, "type": "struct", "fields": [INNER]}
FIELDS = (ID, NAME, PLACE)
Refused = tuple[Sequence[dict[str, Any]], str, str, str]

REFUSED: dict[str, Refused] = {
    "dropped": (
        (ID, PLACE),
        "tables[0].schema.fields",
        "[",
        "field name (id 7) is in the table and cannot be",
    ),
    "reordered": (
        (NAME, ID, PLACE),
        "tables[0].schema.fields[0]",
        "{",
        "name is in another place than in the table: fields cannot be reordered",
    ),
    "narrowed": (
        (ID | {"type": "string"}, NAME, PLACE),
        "tables[0].schema.fields[0]",
        "{",
        "id is int in the table and cannot become string",
    ),
    "another id": (
        (ID, NAME | {"id": 70}, PLACE),
        "tables[0].schema.fields",
        "[",
        "field name (id 7) is in the table and cannot be dropped",
    ),
    "renamed": (
        (ID, NAME | {"name": "title"}, PLACE),
        "tables[0].schema.fields[1]",
        "{",
        "id 7 is name in the table, and title here",
    ),
    "required again": (
        (ID, NAME | {"optional": False}, PLACE),
        "tables[0].schema.fields[1]",
        "{",
        "name is optional in the table and cannot become required",
    ),
    "new and required": (
        (ID, NAME, PLACE, {"name": "price", "id": 10, "type": "int"}),
        "tables[0].schema.fields[3]",
        "{",
        "price is new and must be optional: rows that are stored lack it",
    ),
    "dropped inside": (
        (ID, NAME, PLACE | {"fields": [INNER | {"name": "on", "id": 12}]}),
        "tables[0].schema.fields[2]",
        "{",
        "field place.at (id 9) is in the table and cannot be dropped",
    ),
    "inside": (
        (ID, NAME, PLACE | {"fields": [INNER | {"type": "int"}]}),
        "tables[0].schema.fields[2].fields[0]",
        "{",
        "place.at is float in the table and cannot become int",
    ),
}


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(f"file://{tmp_path}/lake")


@pytest.fixture
def stored(file: Tableflow, run: Callable[[Flow], list[Report]]) -> Tableflow:
    """A file whose table is there, without rows."""
    run(file.write(fields=FIELDS))
    return file


@pytest.mark.parametrize("case", REFUSED)
def test_a_change_that_the_table_refuses_is_a_finding(
    case: str, stored: Tableflow, run: Callable[[Flow], list[Report]]
) -> None:
    fields, path, begins, message = REFUSED[case]
    flow = stored.write(fields=fields)
    loaded = compare(load(stored.path))
    found = [one for one in loaded.findings if one.message.startswith(message)]
    assert [one.path for one in found] == [path]
    lines = stored.path.read_text().splitlines()
    assert lines[found[0].line - 1][found[0].column - 1] == begins
    assert "allowed: add an optional field, make a field optional, int to long" in found[0].message
    assert loaded.flows == ()
    with pytest.raises(PermanentError, match="dataflow check names the lines"):
        run(flow)


def test_another_partitioning_is_one_finding(
    file: Tableflow, run: Callable[[Flow], list[Report]]
) -> None:
    run(file.write(fields=FIELDS))
    file.write(scheme="hour")
    (found,) = compare(load(file.path)).findings
    assert (found.path, found.message) == (
        "tables[0].partitioning_scheme",
        "partitioning_scheme is unpartitioned in the table, and cannot be changed",
    )


def test_a_change_that_is_allowed_is_none(stored: Tableflow) -> None:
    price = {"name": "price", "id": 10, "type": "double", "optional": True}
    inner = [INNER | {"type": "double"}, price | {"id": 11}]
    wider = PLACE | {"optional": True, "fields": inner}
    stored.write(fields=(ID | {"type": "long"}, NAME, wider, price))
    loaded = compare(load(stored.path))
    assert (loaded.findings, len(loaded.flows)) == ((), 1)


def test_the_command_says_it_and_fails(
    stored: Tableflow, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(stored.path)]) == 0
    stored.write(fields=(ID, PLACE))
    assert main(["check", str(stored.path)]) == 1
    assert "tables[0].schema.fields: field name (id 7) is in the table" in capsys.readouterr().out


def test_a_table_that_cannot_be_looked_at_is_a_note(
    stored: Tableflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_S3_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    stored.bucket = Bucket("s3://nowhere")
    stored.write()
    loaded = compare(load(stored.path))
    assert (loaded.findings, len(loaded.flows)) == ((), 1)
    (note,) = loaded.hints
    assert note.path == "tables[0]"
    begin, _, rest = note.message.partition("at nowhere: ")
    assert begin.startswith("not compared with the table that is stored: cannot ")
    assert rest == (
        "no answer from the object store at 127.0.0.1:1: Could not connect to server; check that a "
        "store runs there, that this machine reaches it, and that its address is right: s3Endpoint "
        "of a manifest, else AWS_S3_ENDPOINT"
    )


def test_a_table_that_was_removed_is_named_with_its_data(
    file: Tableflow, run: Callable[[Flow], list[Report]], kafka: devservers.Kafka
) -> None:
    """Also where it was the last one; the table of its rejected records with it."""
    file.produce(kafka, [{"id": 1}, b"bad"] + [{"id": n} for n in range(2, 30)])
    run(file.write())
    document = json.loads(file.path.read_text())
    assert compare(load(file.path)).hints == ()
    file.path.write_text(json.dumps(document | {"tables": []}))
    loaded = compare(load(file.path))
    place = f"{file.bucket.url}/warpstream/_tableflow"
    assert [one.message for one in loaded.hints] == [
        f"table {name} is in no `tables` of these files, and its data stays in {place}/{name}: "
        "declare it again to go on, or delete the table"
        for name in (file.name, f"{file.name}_rejected")
    ]
    assert {one.path for one in loaded.hints} == {"tables"}
    assert len(file.rows()) == 29
