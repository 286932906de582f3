"""The shop as a database: customers and orders that are inserted, updated and deleted."""

from __future__ import annotations

import time

import psycopg
from typing_extensions import override

from devservers.demo.shop import Order, Shop
from devservers.demo.shopkeeper import Shopkeeper

_TABLES = """
CREATE TABLE IF NOT EXISTS customers (
    id bigint PRIMARY KEY, name text NOT NULL, email text, country text, orders int NOT NULL
);
CREATE TABLE IF NOT EXISTS orders (
    id bigint PRIMARY KEY, customer bigint NOT NULL, status text NOT NULL, total numeric(10, 2),
    placed_at timestamptz NOT NULL, changed_at timestamptz NOT NULL
);
"""
_CUSTOMER = """
INSERT INTO customers (id, name, email, country, orders)
VALUES (%(id)s, %(name)s, %(email)s, %(country)s, 1)
ON CONFLICT (id) DO UPDATE SET orders = customers.orders + 1
"""
# who tries the demo may have inserted an order of this number
_PLACED = """
INSERT INTO orders (id, customer, status, total, placed_at, changed_at)
VALUES (%(id)s, %(customer)s, %(status)s, %(total)s, %(placed_at)s, %(changed_at)s)
ON CONFLICT (id) DO NOTHING
"""
_CHANGED = "UPDATE orders SET status = %(status)s, changed_at = %(changed_at)s WHERE id = %(id)s"
_CANCELLED = "DELETE FROM orders WHERE id = %(id)s"
_STATEMENTS = {"placed": _PLACED, "cancelled": _CANCELLED}
_NEXT = "SELECT coalesce(max(id), 0) + 1 FROM orders"


class Clerk(Shopkeeper):
    """Writes a shop's orders and customers into two tables; a cancelled order is deleted."""

    def __init__(self, dsn: str) -> None:
        """Makes the tables that are missing; `dsn`: of their database, as its owner."""
        super().__init__("shop database")
        self._dsn = dsn
        self._connection = self._connected()
        self._connection.execute(_TABLES)
        ((first,),) = self._connection.execute(_NEXT).fetchall()
        self._shop = Shop(first)

    @override
    def happen(self, new: int) -> None:
        try:
            if self._connection.closed:
                self._connection = self._connected()
            for order in self._shop.changes(time.time(), new):
                self._write(order)
        except psycopg.Error:  # who tries the demo ended the session, or altered a table
            time.sleep(0.5)

    @override
    def remember(self) -> None:
        """The table has the newest number."""

    @override
    def stop(self) -> None:
        super().stop()
        self._connection.close()

    def _write(self, order: Order) -> None:
        """One transaction: a new order also counts for its customer."""
        with self._connection.transaction():
            if order["status"] == "placed":
                self._connection.execute(_CUSTOMER, order["customer"])
            row = {**order, "customer": order["customer"]["id"]}
            self._connection.execute(_STATEMENTS.get(order["status"], _CHANGED), row)

    def _connected(self) -> psycopg.Connection:
        return psycopg.connect(self._dsn, autocommit=True)
