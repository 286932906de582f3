"""Lines on stdout (results) and stderr (everything about them)."""

from __future__ import annotations

import sys


def out(text: str) -> None:
    """One line on stdout, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def err(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"{text}\n")
