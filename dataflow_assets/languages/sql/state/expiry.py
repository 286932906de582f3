"""Expires state by `table.exec.state.ttl`: its clock only goes on, whatever is set later."""

from __future__ import annotations

from typing import NamedTuple

from dataflow_assets.languages.sql.state.manifest import Manifest

ALWAYS = 0
"""As a beginning: the setting is as old as the state, as far as anybody knows."""


class Expiry(NamedTuple):
    """The limits of one micro-batch by which state expires, in milliseconds."""

    start: int | None
    """When what is kept began to expire; None: it does not."""
    forgotten_upto: int
    """What was touched then, or before, is forgotten for good; 0: nothing is."""


def expiry(previous: Manifest | None, expires: int, now: int) -> Expiry:
    """Returns what is forgotten in a micro-batch.

    What was there when it began to expire counts as touched then. What is forgotten stays
    forgotten when the setting is longer later, or switched off: its rows are in the files until
    these are written again, and what was computed without them must not be computed with them.

    Args:
        previous: the state before; None: nothing is kept yet.
        expires: the setting in milliseconds; 0: it is switched off.
        now: when the micro-batch was planned.
    """
    before = 0 if previous is None else previous.forgotten_upto or 0
    if not expires:
        return Expiry(None, before)
    start, since = _first_moment(previous, now), now - expires
    return Expiry(start, max(before, since) if start <= since else before)


def _first_moment(previous: Manifest | None, now: int) -> int:
    """A state of an earlier version does not say: that version forgot by the time alone."""
    if previous is None:
        return now
    if previous.expires_from is not None:
        return previous.expires_from
    return ALWAYS if previous.forgotten_upto is None else now
