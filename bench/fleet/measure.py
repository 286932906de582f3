"""Runs the cases that are asked for, one after another; a case that fails is a result as well."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.fleet import cases
from bench.fleet.demo import demo
from bench.fleet.ground import Ground, ground
from bench.fleet.running import Order

Case = Callable[[Order, Path], dict[str, Any]]


def _on_servers(case: Callable[[Order, Ground], dict[str, Any]]) -> Case:
    def measured(order: Order, folder: Path) -> dict[str, Any]:
        with ground(folder) as servers:
            return case(order, servers)

    return measured


CASES: Mapping[str, Case] = {
    "fleet": _on_servers(cases.steady),
    "fleet-idle": _on_servers(cases.idle),
    "fleet-backlog": _on_servers(cases.behind),
    "fleet-broken": _on_servers(cases.broken),
    "fleet-demo": demo,
}
"""By the name on the command line."""


def run(
    order: Order, wanted: Collection[str], say: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each case as it ends."""
    for name, case in CASES.items():
        if name in wanted:
            say(name)
            yield name, {"drive": order.drive, "flows": order.flows} | _measured(case, order)


def _measured(case: Case, order: Order) -> dict[str, Any]:
    with _folder() as folder:
        try:
            return case(order, folder)
        except Exception as error:  # noqa: BLE001 (the other cases go on)
            return {"error": f"{error}", "trace": traceback.format_exc(), "passed": False}


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dataflow-fleet-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the database may run as another user
        yield folder
