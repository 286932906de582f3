"""The `status` of a custom resource, as it is written and as its definition declares it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from dataflow_assets.spec import Spec

Phase = Literal["Running", "Pending", "Error", "Stopped", "Completed", "Failed"]


class Condition(Spec):
    """One statement about the object, in the form of Kubernetes."""

    type: str
    """`SpecResolved`: the manifest is free of mistakes. `Ready`: the flow works."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str = ""
    """One word for programs."""
    message: str = ""
    """What is wrong, or how the flow is driven."""
    observed_generation: int | None = None
    """The generation of the object that it is about."""
    last_transition_time: datetime | None = None
    """When `status` changed last."""


class MaintenanceStatus(Spec):
    """Tells whether the manifest keeps the flow from running."""

    suspended: bool = False
    """`maintenance.suspended` of the manifest."""
    in_maintenance: bool = False
    """Whether a maintenance window is open."""
    next_maintenance_time: datetime | None = None
    """When the next window opens."""
    last_maintenance_time: datetime | None = None
    """When the current or latest window opened."""


class Status(Spec):
    """State of the flow of an object. Written by `dataflow k8s watch`."""

    phase: str
    """One word for all of it: `Running`, `Pending`, `Error` or `Stopped`; with a schedule also
    `Completed` and `Failed`, which is how its last run ended."""
    message: str = ""
    """The same as a sentence."""
    observed_generation: int | None = None
    """The generation of the object that this is about."""
    processed_count: int | None = None
    """Rows that the flow has stored, in all of its tables together."""
    error_count: int | None = None
    """Records that the flow has rejected."""
    last_processed_time: datetime | None = None
    """When the flow last committed rows."""
    maintenance_status: MaintenanceStatus | None = None
    """Whether the manifest keeps the flow from running."""
    conditions: tuple[Condition, ...] = Field(default=())
    """`Ready` and `SpecResolved`."""

    def document(self) -> dict[str, Any]:
        """Returns it as JSON; what is not known is null, which a merge patch takes out."""
        document = self.model_dump(mode="json", by_alias=True)
        document["conditions"] = [  # a list is replaced as a whole
            one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in self.conditions
        ]
        return document


class CronStatus(Status):
    """State of the flow of an object with a schedule. Written by `dataflow k8s watch`."""

    last_schedule_time: datetime | None = None
    """When the schedule last started a run."""
    last_successful_time: datetime | None = None
    """When a run last succeeded, its triggers included."""
    last_failed_time: datetime | None = None
    """When a run, or one of its triggers, last failed."""
    current_run_id: str | None = Field(default=None, alias="currentRunID")
    """The run of Dagster that is active."""
