"""Where a topic or table is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Address:
    """Where a topic or table is, known without network or secrets; becomes the asset key."""

    system: str
    connection: str
    namespace: str | None
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The address as asset key components, the empty ones left out."""
        return tuple(p for p in (self.system, self.connection, self.namespace, self.name) if p)

    def __str__(self) -> str:
        return "/".join(self.parts)
