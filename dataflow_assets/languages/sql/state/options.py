"""The options of a view.

Apart from `source`, as in a connector: `session` and `states` take these options, and `source`
imports `session`.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import InstanceOf

from dataflow_assets.connectors.files.options import FilesConnection
from dataflow_assets.connectors.kafka.source.source import KafkaSource
from dataflow_assets.contracts import Source
from dataflow_assets.languages.sql.engine.view import ViewPlan


class StateLocation(FilesConnection):
    """The folder where the states of views are kept."""

    type: ClassVar[str] = "state"
    guarantee: ClassVar[str] = ""


class ViewSourceOptions(Source):
    """The messages of a view, its query, and the place of its state."""

    source: InstanceOf[KafkaSource]
    others: tuple[InstanceOf[KafkaSource], ...] = ()
    """The messages of the other tables of a UNION ALL, of the same class."""
    view: InstanceOf[ViewPlan]
    location: StateLocation
    max_rejected_percent: float = 10.0
    accepted: str = ""
    """The digest of an earlier query whose state is taken over."""
    equal_keys: frozenset[str] = frozenset()
    """Columns of the target in which keys that differ may be equal: the file accepts that."""
