"""A connector's file in any spelling -> one document: its keys with their texts and places."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from dataflow_assets.errors import Finding
from dataflow_assets.languages.common.documents import Document, NodePlace, Path


@dataclass(frozen=True)
class ConnectorDocument(Document):
    """A connector's file, whose findings name its own keys."""

    moved: Mapping[Path, Path] = field(default_factory=dict, repr=False)
    """The keys that say what rules between flows look for in a manifest, by the places there."""

    @override
    def finding(self, path: Path, message: str, *, key: bool = False) -> Finding:
        own = (key for place, key in self.moved.items() if path[: len(place)] == place)
        return super().finding(next(own, path), message, key=key)


def connector(
    document: Document, classes: Collection[str], moved: Mapping[Path, Path]
) -> ConnectorDocument | None:
    """Reads a connector as properties, or as Connect's REST interface takes it.

    Args:
        document: an object may be the `config` beside a name, or the `config` alone.
        classes: the `connector.class` of a language.
        moved: as in ConnectorDocument.

    Returns:
        The connector with its values as text, as Connect has them; None for any other document.
    """
    config = document.get("config")
    base: Path = ("config",) if isinstance(config, dict) else ()
    inner = config if base else document.value
    if not isinstance(inner, dict) or str(inner.get("connector.class")).strip() not in classes:
        return None
    value = {key: _text(one) for key, one in inner.items()}
    places: dict[Path, NodePlace] = {(key,): document.places[*base, key] for key in value}
    if "name" not in value and isinstance(document.get("name"), str):
        value["name"], places["name",] = document.get("name"), document.places["name",]
    places[()] = document.places[()]
    return ConnectorDocument(document.file, value, places, sound=document.sound, moved=moved)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
