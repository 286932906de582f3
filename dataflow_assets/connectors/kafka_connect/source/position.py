"""A flow's position in what a connector has delivered: a part of the spool, and the source offsets.

What a span adds is such an object too, with the offsets of its own parts.
"""

from __future__ import annotations

import msgspec

from dataflow_assets.connectors.kafka_connect.parts import ConnectPart
from dataflow_assets.connectors.kafka_connect.spool import ConnectOffset
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.decoding import decode_json


class ConnectPosition(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The default is before everything."""

    spool: str = ""
    """Id of the spool."""
    part: int = 0
    """Number of the last part that is done."""
    token: str = ""
    """Of that part; empty in positions of older versions."""
    offsets: dict[str, ConnectOffset] = {}
    """By the source partition, as JSON: what the connector is told to go on behind."""
    visible: int = 0
    """Of an end alone: behind all that the connector delivers until it has been quiet, in ms since
    1970 by the clock of the driver."""

    @classmethod
    def parse(cls, text: object) -> ConnectPosition:
        """Returns what `text` wrote; None for the beginning. PermanentError for anything else."""
        try:
            return decode_json(str(text or "{}"), cls)
        except msgspec.MsgspecError:
            raise PermanentError(f"{text} is not a position of a connector") from None

    @property
    def text(self) -> str:
        return msgspec.json.encode(self, order="sorted").decode()

    def then(self, added: ConnectPosition) -> ConnectPosition:
        offsets = {**self.offsets, **added.offsets}
        return ConnectPosition(added.spool, added.part, added.token, offsets)


class Piece(msgspec.Struct, frozen=True):
    """The rows `begin <= row < end` of a part of the spool: what a task reads at once."""

    part: ConnectPart
    begin: int
    end: int

    @classmethod
    def parse(cls, part: str) -> Piece:
        return decode_json(part, cls)

    @property
    def text(self) -> str:
        """This piece as the text of a part of a span."""
        return msgspec.json.encode(self).decode()

    def smaller(self, rows: int) -> list[Piece]:
        """These rows in pieces of at most so many."""
        return [
            msgspec.structs.replace(self, begin=at, end=min(at + rows, self.end))
            for at in range(self.begin, self.end, rows)
        ]
