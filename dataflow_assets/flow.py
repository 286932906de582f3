"""Flow and Branch: one manifest after parsing, frozen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from dataflow_assets.contracts import Address, Limit, Rejects, Sink, Source, Target, utc_now
from dataflow_assets.errors import PermanentError
from dataflow_assets.records.chain import Transformation
from dataflow_assets.schedules.maintenance_window import MaintenanceWindow
from dataflow_assets.schedules.schedule import Schedule
from dataflow_assets.secrets import Lookup, Secrets

SHARED_LANE = "shared"
End = TypeVar("End", Source, Sink)


@dataclass(frozen=True)
class Policies:
    """Limits of a flow, and when it must stop."""

    limit: Limit = Limit()
    freshness_seconds: float = 10.0
    """Within which a new record should be visible in the target."""
    max_rejected_percent: float = 10.0
    on_topic_recreated: str = "fail"  # or restart
    checkpoint_reset: bool = False
    rejects: Rejects = Rejects()


@dataclass(frozen=True)
class Branch:
    """A sink of a flow. Identity: sink type and target, never an index."""

    sink: Sink
    connection: str | None = None
    routes: tuple[str | None, ...] = (None,)
    """The conditions of the routes that lead to it; None: what no route takes."""
    place: tuple[str | int, ...] = ("spec", "sink", "config")
    """Where the sink stands in the manifest."""

    @property
    def address(self) -> Address:
        """Returns where the rows go; the manifest's connection name wins over the derived one."""
        address = self.sink.address()
        return replace(address, connection=self.connection) if self.connection else address

    @property
    def main(self) -> bool:
        """True for the branch of `spec.sink`: what fails before branching is rejected there."""
        return None in self.routes

    def with_route(self, route: str | None) -> Branch:
        """The branch with one more way to it."""
        return self if route in self.routes else replace(self, routes=(*self.routes, route))

    @property
    def id(self) -> str:
        """Stable under renamed connections, reordered branches, and secrets that are resolved."""
        return _branch_id(self.sink.address())

    @property
    def stored_id(self) -> str:
        """Under which its sink keeps the checkpoint. Secrets must be resolved.

        A Secret that names another topic, or another Iceberg table, begins with a new checkpoint.
        """
        return _branch_id(self.sink.resolved_address())


@dataclass(frozen=True)
class Flow:
    """One manifest: where to read, where to write, under which rules. Identity: namespace/name."""

    namespace: str
    name: str
    source: Source
    branches: tuple[Branch, ...]
    policies: Policies = Policies()
    transformations: tuple[Transformation, ...] = ()
    file: Path = Path()
    line: int = 1
    hash: str = ""
    suspended: bool = False
    maintenance: MaintenanceWindow | None = None
    schedule: Schedule | None = None
    """Of a flow that is drained by a schedule; such a flow is in no lane."""
    source_connection: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    secrets: Secrets = Secrets()
    config_maps: Mapping[tuple[str, str], Mapping[str, str]] = field(
        default_factory=dict, repr=False
    )
    """Of a flow with a schedule, for its triggers: texts of ConfigMaps, by (namespace, name)."""
    language: str = "dataflow"
    """The name of its manifest's language."""
    files: str = field(default="", repr=False)
    """Of a flow that is resolved: a digest of the files that its certificates and keys are in."""

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def slug(self) -> str:
        """The flow's name in Dagster; the namespace is left out where it is `default`."""
        space = "" if self.namespace == "default" else f"{self.namespace}__"
        return mangle(f"{space}{self.name}")

    def pause_reason(self, at: datetime | None = None) -> str:
        """Returns why it must not run at this time, or now; empty where it may."""
        if self.suspended:
            return f"suspended in its manifest ({self.file}:{self.line})"
        return self.maintenance.reason(at or utc_now()) if self.maintenance else ""

    @property
    def owners(self) -> tuple[str, ...]:
        """Returns who to ask, from the annotation `dataflow-assets/owners`."""
        return split_list(self.annotations.get("dataflow-assets/owners", ""))

    @property
    def upstream(self) -> tuple[tuple[str, ...], ...]:
        """Asset keys of what its source is made of, from `dataflow-assets/upstream`."""
        keys = split_list(self.annotations.get("dataflow-assets/upstream", ""))
        return tuple(tuple(map(mangle, key.split("/"))) for key in keys)

    @property
    def version(self) -> str:
        """The manifest's version, as Dagster shows and stores it: the beginning of its hash."""
        return self.hash[:16]

    @property
    def lane(self) -> str:
        """The lane that drives it beside others, from the annotation `dataflow-assets/lane`."""
        return self.annotations.get("dataflow-assets/lane", SHARED_LANE)

    @property
    def source_address(self) -> Address:
        """The address of the source; the manifest's connection name wins over the derived one."""
        address = self.source.address()
        if self.source_connection is None:
            return address
        return replace(address, connection=self.source_connection)

    @property
    def read_addresses(self) -> tuple[Address, ...]:
        """All that it reads: that of its source comes first, whose connection may be named."""
        own, first = self.source.address().connection, self.source_address
        others = [
            replace(one, connection=first.connection) if one.connection == own else one
            for one in self.source.traits.also_reads
        ]
        return (first, *(one for one in others if one != first))

    @property
    def by_record(self) -> bool:
        """True where messages become records; else their columns are decoded straight."""
        shaped = any(branch.sink.traits.whole_bodies for branch in self.branches)
        return shaped or bool(self.transformations)

    def reads(self) -> frozenset[str]:
        """The metadata keys that steps and conditions look at, and what names a row to delete."""
        steps = frozenset[str]().union(*(one.reads() for one in self.transformations))
        tombstones = frozenset({"key"} if self.source.traits.null_messages == "delete" else ())
        return steps | tombstones

    def target(self, branch: Branch) -> Target:
        """The branch as its sink sees it. Secrets must be resolved."""
        name = self.source.resolved_address().name
        return Target(self.id, branch.stored_id, self.hash, name, rejects=self.policies.rejects)

    def resolve(self) -> Flow:
        """The flow with every SecretRef's value of this moment in place; called on the driver.

        Two of them are equal where all values, and all files of certificates and keys, are equal.

        Whoever opens the flow again calls it again: values may have been replaced. Raises
        PermanentError that names all that is missing, or the ends that Secrets have made one topic
        or table; TransientError where the Kubernetes API cannot be asked.
        """
        lookup = Lookup(self.secrets)
        resolved = self._fill(lookup)
        lookup.check()
        _check_apart(resolved)
        return replace(resolved, files=lookup.files())

    def resolvable(self) -> Flow:
        """Resolves like `resolve`, with the values that can be had: what is missing is left out."""
        return self._fill(Lookup(self.secrets))

    def _fill(self, lookup: Lookup) -> Flow:
        source = lookup.fill(self.source)
        branches = tuple(replace(one, sink=lookup.fill(one.sink)) for one in self.branches)
        rejects = self.policies.rejects
        if rejects.sink is not None:
            rejects = replace(rejects, sink=lookup.fill(rejects.sink))
        policies = replace(self.policies, rejects=rejects)
        return replace(self, source=source, branches=branches, policies=policies)


def loops(source: Source, sink: Sink, one: Address, other: Address) -> bool:
    """Returns whether a flow reads what it writes: a query reads what it likes.

    Called when manifests are loaded and when secrets are in place, which name topics and tables.

    Args:
        source: what is read.
        sink: what is written.
        one: the source's address.
        other: the sink's address.

    Returns:
        True where both are one topic or table of one server.
    """
    same = (one.system, one.namespace, one.name) == (
        other.system,
        other.namespace,
        other.name,
    )
    together = set(source.spellings()) & set(sink.spellings())
    return (
        same and bool(together) and source.traits.reads_back and not getattr(source, "query", None)
    )


def _check_apart(flow: Flow) -> None:
    """Raises where Secrets have made two ends one, which `dataflow check` cannot see."""
    own, seen = flow.source.resolved_address(), dict[str, Branch]()
    source = _without_references(flow.source)
    for branch in flow.branches:
        sink = _without_references(branch.sink)
        if loops(source, sink, own, branch.sink.resolved_address()):
            raise PermanentError(
                f"the flow reads what it writes: the Secrets of {flow.source.address()} and "
                f"{branch.sink.address()} hold one name; give one of them another"
            )
        other = seen.setdefault(branch.stored_id, branch)
        if other is not branch and other.id != branch.id:
            raise PermanentError(
                f"{other.sink.address()} and {branch.sink.address()} are one target by what their "
                "Secrets hold: a flow has one branch for each target; give one of them another name"
            )


def _without_references(end: End) -> End:
    """With values alone: a server may be named at one end, and be in a Secret at the other."""
    names = (name for name in type(end).model_fields if name.endswith("_secret_ref"))
    return end.model_copy(update=dict.fromkeys(names))


def _branch_id(address: Address) -> str:
    return ":".join(p for p in (address.system, address.namespace, address.name) if p)


def split_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def mangle(name: str) -> str:
    """A name as Dagster allows it: letters, digits and `_`. Collisions are manifest errors."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def asset_key(address: Address) -> tuple[str, ...]:
    """The components of the asset key of a topic or table."""
    return tuple(mangle(part) for part in address.parts)
