"""The versions of which copies are stored."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def copies(names: Iterable[str]) -> list[Any]:
    """The file and the name of each copy, of each version that has one of this name."""
    return [
        pytest.param(path, name, id=f"{path.parent.name}-{name}")
        for name in sorted(names)
        for path in sorted(HERE.glob(f"*/{name}.json"))
    ]
