"""`table.exec.state.ttl` that is changed, without servers: what is forgotten stays forgotten."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from dataflow_assets.contracts import system_name
from dataflow_assets.languages.sql.state.driver import Limits
from dataflow_assets.languages.sql.state.manifest import Manifest, manifest_of
from dataflow_assets.languages.sql.state.source import ViewSource
from dataflow_assets.manifests.load import load
from dataflow_assets.testing import choose
from tests.languages.sql.state.test_model import LOG, Message, Run, Sink, log_source
from tests.languages.sql.test_rows import table

TABLES = (
    f"{table('s', 'k BIGINT, g STRING, PRIMARY KEY (k) NOT ENFORCED')}\n"
    f"{table('o', 'g STRING, n BIGINT, PRIMARY KEY (g) NOT ENFORCED')}\n"
)
QUERY = "INSERT INTO o SELECT g, COUNT(*) FROM s GROUP BY g;"
HERE, IN_TASKS = Limits(), Limits(few=0)


def source(folder: Path, hours: int) -> ViewSource:
    """The query with a setting of so many hours; 0: switched off."""
    file = folder / "one.sql"
    setting = f"SET 'table.exec.state.ttl' = '{hours} h';\n" if hours else ""
    file.write_text(setting + TABLES + QUERY)
    found = choose(load(file), None).source
    assert isinstance(found, ViewSource)
    return found


def row(key: int, group: str) -> Message:
    return b'{"k":%d}' % key, b'{"k":%d,"g":"%s"}' % (key, group.encode())


def deleted(key: int) -> Message:
    return b'{"k":%d}' % key, None


class Forgetful(Sink):
    """A row that was forgotten may come again as it is."""

    def take(self, parts: Sequence[pa.RecordBatch]) -> None:
        for one in (one for part in parts for one in part.to_pylist()):
            body = json.loads(one["body"])
            self.rows.pop(body["g"], None)
            if one[system_name("operation")] != "delete":
                self.rows[body["g"]] = body


class Expiring:
    """A view whose setting changes from one micro-batch to the next."""

    def __init__(self, folder: Path, hours: int, limits: Limits = HERE) -> None:
        found = source(folder, hours)
        messages = log_source(found.source)
        self._folder, self._limits, self._run = (
            folder,
            limits,
            Run(found, messages, Forgetful(["g"])),
        )
        LOG.clear()
        LOG["0"] = []

    @property
    def state(self) -> Manifest:
        """As it is stored."""
        assert self._run.manifest is not None
        return self._run.manifest

    def of_an_earlier_version(self) -> None:
        """The state as versions wrote it that forgot by the time alone."""
        self._run.manifest = replace(self.state, expires_from=None, forgotten_upto=None)

    def after(self, minutes: int, *sent: Message, hours: int = 1) -> dict[str, int]:
        """How many rows each group has in the target."""
        self._run.source = source(self._folder, hours)
        self._run.now += timedelta(minutes=minutes)
        LOG["0"] += sent
        self._run.span({"0": len(LOG["0"])}, self._limits, small=True)
        self._run.manifest = manifest_of(self.state.text(), "state")
        return {one["g"]: int(one["n"]) for one in self._run.sink.rows.values()}


@pytest.fixture
def view(folder: Path) -> Expiring:
    """One row of `x` is forgotten, and counts no more: another one came later."""
    found = Expiring(folder, 1)
    found.after(0, row(9, "z"))
    found.after(600, row(1, "x"))
    assert found.after(120, row(2, "x")) == {"z": 1, "x": 1}
    return found


@pytest.mark.parametrize("hours", [1, 24, 0])
def test_a_row_that_is_forgotten_stays_so_whatever_is_set_later(view: Expiring, hours: int) -> None:
    assert view.after(5, deleted(1), hours=hours) == {"z": 1, "x": 1}
    assert view.after(5, row(9, "x"), hours=hours) == {"z": 1, "x": 2}


@pytest.mark.parametrize("hours", [24, 0])
def test_a_row_that_was_not_forgotten_counts_by_the_new_setting(view: Expiring, hours: int) -> None:
    view.after(5, hours=hours)
    assert view.after(20 * 60, deleted(2), hours=hours) == {"z": 1}


def test_a_group_that_is_forgotten_begins_anew_while_the_setting_is_off(view: Expiring) -> None:
    assert view.after(5, row(3, "z"), row(4, "z"), hours=0) == {"z": 2, "x": 1}
    assert view.after(60 * 24, row(5, "z"), hours=1) == {"z": 3, "x": 1}
    assert view.after(59, deleted(2)) == {"z": 3}
    assert view.after(1, deleted(3)) == {"z": 3}


def test_what_was_forgotten_before_an_upgrade_stays_forgotten(view: Expiring) -> None:
    view.of_an_earlier_version()
    assert view.after(5, deleted(1)) == {"z": 1, "x": 1}
    assert view.after(5, deleted(1), row(9, "x"), hours=24) == {"z": 1, "x": 2}


@pytest.mark.parametrize("limits", [HERE, IN_TASKS])
def test_a_setting_that_is_switched_on_later_forgets_nothing_at_once(
    folder: Path, limits: Limits
) -> None:
    """Rows of an upsert table, and the groups that they are counted in."""
    view = Expiring(folder, 0, limits)
    view.after(0, row(1, "x"), row(2, "x"), row(3, "y"), hours=0)
    year = 60 * 24 * 365
    assert view.after(year, deleted(1)) == {"x": 1, "y": 1}
    assert view.after(59, deleted(2)) == {"y": 1}
    assert view.after(1, deleted(3)) == {"y": 1}
