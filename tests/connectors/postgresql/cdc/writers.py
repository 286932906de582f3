"""Twenty sessions that change the table `source` until their process gets the end of its input.

A process of its own: whoever tests what a kill leaves behind forks, which bears no other threads.
"""

from __future__ import annotations

import random
import sys
import threading

import psycopg

COLUMNS = "id int PRIMARY KEY, n int NOT NULL, big text, who int"
SESSIONS, PAUSE = 20, 0.1  # seconds between two transactions of a session
KEYS = 2_000
"""Rows are of the keys up to this one; whose key changes has the negative one."""
_LARGE = "(SELECT string_agg(md5((i::bigint * {n})::text), '') FROM generate_series(1, 90) i)"
_PUT = (
    "INSERT INTO source VALUES ({k}, {n}, {big}, {who}) "
    "ON CONFLICT (id) DO UPDATE SET n = excluded.n, big = excluded.big, who = excluded.who"
)
# Each change of several rows, of which other sessions hold some: always in the order of keys.
_MANY = (
    "UPDATE source SET n = {n}, who = {who} WHERE id IN (SELECT id FROM source "
    "WHERE id BETWEEN {k} AND {k} + 5 ORDER BY id FOR UPDATE)"
)
_MOVED = (
    "UPDATE source SET id = -id WHERE id = {k} AND big IS NULL "
    "AND NOT EXISTS (SELECT FROM source WHERE id = -{k})"
)
_CHANGES = (
    _PUT,
    _PUT,
    "UPDATE source SET n = {n}, who = {who} WHERE id = {k}",
    "UPDATE source SET n = {n}, big = NULL, who = {who} WHERE id = {k}",
    "DELETE FROM source WHERE id = {k}",
    _MOVED,
    "DELETE FROM source WHERE id = -{k}",
    _MANY,
)


def transaction(chance: random.Random, who: int) -> list[str]:
    """The statements of one transaction, which may roll back all or a part of itself."""
    keys = sorted(chance.randint(1, KEYS) for _ in range(chance.choice((1, 1, 3))))
    found = ["BEGIN"]
    for k in keys:
        n = chance.randint(1, 10**9)
        big = chance.choice(("NULL", "'short'", _LARGE.format(n=n)))
        found.append(chance.choice(_CHANGES).format(k=k, n=n, big=big, who=who))
        if chance.random() < 0.05:
            found = ["BEGIN", "SAVEPOINT s", *found[1:], "ROLLBACK TO s"]
    return [*found, "ROLLBACK" if chance.random() < 0.05 else "COMMIT"]


def _write(dsn: str, schema: str, who: int, over: threading.Event) -> None:
    chance = random.Random(who)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f'SET search_path TO "{schema}"'.encode())
        connection.execute(f"SET synchronous_commit TO {'off' if who % 2 else 'on'}".encode())
        while not over.wait(PAUSE):
            try:
                for statement in transaction(chance, who):
                    connection.execute(statement.encode())
            except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
                connection.execute("ROLLBACK")


def main() -> None:
    """Writes until the input ends."""
    dsn, schema = sys.argv[1:]
    over = threading.Event()
    sessions = [
        threading.Thread(target=_write, args=(dsn, schema, who, over)) for who in range(SESSIONS)
    ]
    for one in sessions:
        one.start()
    sys.stdin.read()
    over.set()
    for one in sessions:
        one.join()


if __name__ == "__main__":
    main()
