"""Where a mistake is, and what is said about it."""

from __future__ import annotations

import re

from pydantic_core import ErrorDetails


def placed(error: ErrorDetails) -> tuple[str, str]:
    """(key, message); a rule between fields is at the key that its sentence begins with."""
    at, message = ".".join(map(str, error["loc"])), error["msg"]
    rule = re.fullmatch(r"(\w+): (.*)", message) if not at else None
    return (rule[1], rule[2]) if rule else (at, message)
