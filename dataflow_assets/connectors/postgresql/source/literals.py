"""Values of statements that cannot have parameters: COPY and EXPLAIN.

Each value is bound as a parameter of `set_config` and read back by `current_setting`, which the
planner evaluates as it does a parameter: estimates and index conditions are those of the value.
"""

from __future__ import annotations

from dataflow_assets.connectors.postgresql.client import Link, Row


class Values:
    """Values of one statement, by their places in it."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def of(self, value: str, declared: str) -> str:
        """The value in the statement, as the declared type."""
        self._found.append(value)
        return f"current_setting('dataflow.v{len(self._found)}')::{declared}"

    def bind(self, link: Link) -> None:
        """Sets the values, until the transaction ends."""
        if self._found:
            calls = (
                f"set_config('dataflow.v{at}', ${at}, true)"
                for at in range(1, len(self._found) + 1)
            )
            link.execute(f"SELECT {', '.join(calls)}", *self._found)


def ask(link: Link, query: str, values: Values) -> list[Row]:
    """The rows of one statement with its values; inside the caller's transaction."""
    values.bind(link)
    return link.execute(query)
