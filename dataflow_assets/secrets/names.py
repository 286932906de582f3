"""Which keys of a foreign configuration name secrets, as far as a name can say so."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r"secret|password|passphrase|passwd|token|credential|api[._-]?key|access[._-]?key|private"
    r"|sasl\.jaas",
    re.IGNORECASE,
)


def is_secret(key: str) -> bool:
    """Whether the value of a key must not be shown."""
    return _SECRET.search(key) is not None
