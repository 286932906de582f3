"""Reasons to end a run between two micro-batches: a signal, an edited manifest, a switch.

The loop asks several times a second; each reason looks only as often as a look is cheap.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from dataflow_assets.flow import Flow
from dataflow_assets.manifests.load import load

Reason = Callable[[], str | None]
"""Why a run is to end now; nothing, or no text, where it may go on."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def first(*reasons: Reason) -> Reason:
    return lambda: next((why for reason in reasons if (why := reason())), None)


def every(seconds: float, reason: Reason) -> Reason:
    """This reason, asked for at most once in that time."""
    asked_at = -seconds

    def ask() -> str | None:
        nonlocal asked_at
        now = time.monotonic()
        if now - asked_at < seconds:
            return None
        asked_at = now
        return reason()

    return ask


def manifest_changed(flow: Flow) -> Reason:
    """The reason that the flow's file says something else by now; a touched file is no change."""
    if not flow.file.is_file():
        return lambda: None

    def look() -> str | None:
        loaded = load(flow.file)
        now = next((other for other in loaded.flows if other.id == flow.id), None)
        if now is None:
            gone = "is broken now" if loaded.findings else "is no longer in its file"
            return f"its manifest {gone}; what was read is committed"
        if now.suspended and not flow.suspended:
            return "its manifest says suspended now"
        changed = now.hash != flow.hash
        return "its manifest changed; the next run follows the new one" if changed else None

    return look


class Interrupts:
    """Turns the first Ctrl-C or termination into a reason to end; the second acts at once."""

    def __init__(self) -> None:
        self.asked = False

    def reason(self) -> str | None:
        return "it was asked to stop" if self.asked else None

    @contextmanager
    def defer(self) -> Iterator[None]:
        """Until the block ends, signals only leave a note. Only the main thread gets any."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in _SIGNALS}

        def note(number: int, frame: FrameType | None) -> None:
            previous = before[signal.Signals(number)]
            if self.asked and callable(previous):
                previous(number, frame)
            self.asked = True

        for number in _SIGNALS:
            signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
