"""Triggers: what runs once a scheduled run of a flow has ended."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import override

from dataflow_assets.secrets import SecretRef
from dataflow_assets.spec import Addition, Spec

_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")


class SecretKeyRef(SecretRef):
    """One key of a Secret of the flow's namespace."""

    optional: bool = False
    """`true`: without it the variable is not set; else the trigger fails."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.namespace is not None:
            yield "namespace: leave it out: a trigger reads those of its flow's namespace"


class ConfigMapKeyRef(Spec):
    """One key of a ConfigMap of the flow's namespace."""

    name: str
    """The ConfigMap's name."""
    key: str
    """Which of its values."""
    optional: bool = False
    """`true`: without it the variable is not set; else the trigger fails."""


class EnvSource(Spec):
    """One place where the value of a variable is looked up."""

    secret_key_ref: SecretKeyRef | None = None
    """A key of a Secret: `name`, `key` and `optional`."""
    config_map_key_ref: ConfigMapKeyRef | None = None
    """A key of a ConfigMap: `name`, `key` and `optional`. Outside a cluster it is a `ConfigMap`
    document in the folder of the manifest."""
    field_ref: dict[str, Any] | None = None
    """A field of the pod; only in a cluster."""
    resource_field_ref: dict[str, Any] | None = None
    """A resource of the container; only in a cluster."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if sum(getattr(self, name) is not None for name in type(self).model_fields) != 1:
            yield "must have one of secretKeyRef, configMapKeyRef, fieldRef, resourceFieldRef"


class Variable(Spec):
    """One environment variable of a trigger."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
    """Its name."""
    value: str = ""
    """Its value; `$(NAME)` is the value of a variable above, `$$` is `$`."""
    value_from: EnvSource | None = None
    """A Secret or a ConfigMap, in the place of `value`."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        if self.value and self.value_from is not None:
            yield "valueFrom: is set beside value: keep one of the two"


class Trigger(Spec):
    """One container, process, Dagster job or asset that runs after a run of the flow."""

    image: str | None = Field(default=None, min_length=1)
    """The container's image: required, unless the trigger is a `job` or an `asset`. Outside a
    cluster `command` and `args` run as a process of this machine, whatever the image is."""
    job: Annotated[str | None, Addition()] = Field(default=None, min_length=1)
    """In place of an image: a job of the same code location, which runs with its defaults."""
    asset: Annotated[str | None, Addition()] = Field(default=None, min_length=1)
    """In place of an image: the key of an asset of the same code location, such as
    `postgresql/shop/public/revenue`, which is materialized."""
    name: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
    )
    """Its name in Dagster; `trigger-0` for the first one without a name, and so on."""
    command: tuple[str, ...] = ()
    """The program; without it that of the image. Outside a cluster it must be there."""
    args: tuple[str, ...] = ()
    """Its arguments; `$(NAME)` is the value of a variable of `env`, `$$` is `$`."""
    env: tuple[Variable, ...] = ()
    """Environment variables, beside those that tell of the run."""
    resources: dict[str, Any] | None = None
    """Requests and limits of the container; only in a cluster."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the image is pulled; only in a cluster."""

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        kinds = [name for name in ("image", "job", "asset") if getattr(self, name) is not None]
        if not kinds:
            yield "image: is required, unless the trigger is a job or an asset"
        if len(kinds) > 1:
            yield f"{kinds[1]}: is set beside {kinds[0]}: keep one of them"
        if kinds and kinds[0] != "image":
            names = ("command", "args", "env", "resources", "image_pull_policy")
            for name in (one for one in names if getattr(self, one)):
                key = type(self).model_fields[name].alias
                yield f"{key}: is for an image; a Dagster {kinds[0]} has no container"

    def label(self, index: int) -> str:
        """Returns its name: that of the manifest, else one made of its place among the others."""
        return self.name or f"trigger-{index}"


def references(text: str) -> list[str]:
    """The variables that a text refers to, as Kubernetes writes them: `$(NAME)`."""
    return [match[2] for match in _REFERENCE.finditer(text) if match[2]]


def expand(texts: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The texts with the values in place of `$(NAME)`; what names no variable stays as it is."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else variables.get(match[2], match[0])

    return [_REFERENCE.sub(value, text) for text in texts]
