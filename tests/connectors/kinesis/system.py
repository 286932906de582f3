"""Streams of Kinesis as sources of whole flows."""

from __future__ import annotations

from collections.abc import Sequence

from tests.systems import Change, Config, System, encoded_row


class Kinesis(System):
    """A stream of two shards; a source alone."""

    type = "kinesis"
    tells_changes = True
    sends_nulls = False

    def at(self, role: str, config: Config) -> Config:  # noqa: ARG002 - a source alone
        from tests.connectors.kinesis.driver import Stream

        self.stream = Stream(self.request.getfixturevalue("kinesis"))
        self.request.addfinalizer(self.stream.remove)
        return config | self.stream.config

    def change(self, config: Config, changes: Sequence[Change]) -> None:
        assert all(change.op != "delete" for change in changes), "no record is null"
        self.stream.put(
            [encoded_row(config, change.row) for change in changes],
            lambda n: str(changes[n].row["id"]),
        )
