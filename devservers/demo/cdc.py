"""The demo of `make demo-cdc`: orders and customers of one database, followed in another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import ClassVar

from typing_extensions import override

from devservers.demo.clerk import Clerk
from devservers.demo.demo import OWNER, Demo

COPY = "office"  # the second database, and its owner
ORDERS_PER_SECOND = 20.0  # each changes about three times


class CdcDemo(Demo):
    """The manifest of `examples/demo-cdc`. One server of PostgreSQL has both databases."""

    name = "demo-cdc"
    databases: ClassVar[Mapping[str, str]] = {OWNER: "REPLICATION", COPY: ""}

    @override
    def open_shop(self, stack: ExitStack) -> None:
        clerk = Clerk(self.dsn())
        clerk.start(ORDERS_PER_SECOND)
        stack.callback(clerk.stop)
        self._say(f"the shop is open: some {4 * ORDERS_PER_SECOND:.0f} transactions a second")

    @override
    def places(self) -> Iterator[tuple[str, str]]:
        yield "the shop", f"psql {self.dsn()}"
        yield "the copy", f"psql {self.dsn(COPY)}"
        yield "try", "ALTER TABLE orders ADD COLUMN note text; UPDATE, DELETE: the copy follows"
