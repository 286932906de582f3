"""Messages between the driver and the host of a connector, one line of JSON each."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dataflow_assets.records.decoding import decode_json

SPOOL_BYTES = 1024 * 1024 * 1024
"""Of records that wait: with more of them no task is asked."""


class ConnectOrder(msgspec.Struct, frozen=True):
    """An order to the host. Comes by the process's input: arguments can be read by everybody."""

    connector: str
    """Java class of the connector; without a package where it is the only one of its name."""
    config: dict[str, str]
    """With credentials in place; references to config providers are as they are written."""
    plugins: list[str]
    """Folders of plugins: of jars, or of folders of jars."""
    jars: list[str]
    """Of Connect itself."""
    spool: str
    spool_id: str
    """Of the spool that the flow has read so far; empty for a flow that begins."""
    position: int
    """Number of the last part that the flow has read; 0 for a flow that begins."""
    tasks: int
    heap: str
    plain: bool
    """Values that are text or bytes are stored as they are."""
    part_rows: int
    """A part has no more records than that, but for those of its last poll."""
    part_bytes: int
    plugin_jars: list[str] = []
    """Of one more plugin."""
    schemas: bool = False
    """Values are beside their schema."""
    hidden: list[str] = []
    """Keys of `config` whose values must be shown nowhere, with what their references stand for."""
    part_seconds: float = 0.5
    spool_bytes: int = SPOOL_BYTES
    """Of records that wait, before compression: while there are more, no task is polled."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the host.

    `opened`: the spool is, whose id is `spool`. `started`: all tasks are. `starting`: they are
    stopped, to be started again. `alive`, every half second: `quiet` are the seconds in which no
    task has delivered anything. `secrets`: `values` that must be shown nowhere, beside those that
    the driver knows. `failed`: the process ends, `message` says why, `lasting` that trying again is
    useless.
    """

    event: Literal["opened", "starting", "started", "alive", "secrets", "failed"]
    quiet: float = 0.0
    tasks: int = 0
    spool: str = ""
    values: list[str] = []
    message: str = ""
    lasting: bool = False


def encode(message: ConnectOrder | Event) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes, kind: Any) -> Any:
    return decode_json(line, kind)
