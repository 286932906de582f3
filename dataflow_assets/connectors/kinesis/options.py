"""Options of a stream of Kinesis: where it is, and what is read of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from typing_extensions import override

from dataflow_assets.contracts import Address
from dataflow_assets.contracts.source import NullMessages
from dataflow_assets.formats.source_options import FormattedSource
from dataflow_assets.secrets import Fills, SecretRef
from dataflow_assets.spec import Refused

Secret = SecretStr | None
Ref = SecretRef | None
Begin = Literal["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"]

_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d{1,2}")
_NAME = r"^[a-zA-Z0-9_.-]{1,128}$"
_NEVER_NULL = "a record of Kinesis always has data, be it empty"
_TEXT_KEYS = "the partition key of a record is text"


class KinesisSourceOptions(FormattedSource):
    """The keys of a source."""

    stream: str = Field(pattern=_NAME)
    """Name of the stream."""
    region: str | None = None
    """AWS region of the stream; AWS_REGION by default."""
    endpoint: str | None = None
    """Address of the service, for instance an interface VPC endpoint; by default that of the
    region."""
    access_key: Secret = None
    """AWS access key. Without it the credentials are those that AWS's own clients find: in the
    environment, in a profile, by the role of the machine or pod."""
    access_key_secret_ref: Annotated[Ref, Fills("access_key")] = None
    """Secret with the access key."""
    secret_access_key: Secret = None
    """AWS secret key."""
    secret_access_key_secret_ref: Annotated[Ref, Fills("secret_access_key")] = None
    """Secret with the secret key."""
    starting_position: Begin = "TRIM_HORIZON"
    """Where a flow without a checkpoint begins: at the oldest record of the stream, at the first
    record that arrives from now on, or at `startingTimestamp`."""
    starting_timestamp: str | None = None
    """With `startingPosition: AT_TIMESTAMP`: the flow begins at the first record that arrived at
    this time or later. A date and time with a zone, such as 2026-01-31T00:00:00Z."""
    envelope: bool = False
    """True: a message is not the data of a record, but an object with `partitionKey`,
    `sequenceNumber`, `shardId` and `data`, the data in base64."""
    on_data_loss: Literal["fail", "continue"] = "fail"
    """When retention may have removed records that were not read: stop, or go on with a warning."""
    on_topic_recreated: Literal["fail", "restart"] = "fail"
    """When the stream was deleted and re-created: stop, or read the new stream from its
    beginning."""
    poll_interval: int = Field(1, ge=1)
    """The shortest time between two looks at the stream, in seconds."""
    tombstones: Annotated[NullMessages, Refused(_NEVER_NULL, allowed=("reject",))] = "reject"
    """Not for Kinesis: no record is null."""
    key_format: Annotated[Literal["text", "avro"], Refused(_TEXT_KEYS, allowed=("text",))] = "text"
    """Not for Kinesis: partition keys are text."""

    @field_validator("endpoint")
    @classmethod
    def _with_host(cls, value: str | None) -> str | None:
        parts = urlsplit(value or "")
        if value and not (parts.scheme in ("http", "https") and parts.hostname):
            raise ValueError("must have a scheme and a host, like https://vpce-1.example.com")
        return value.rstrip("/") if value else value

    @field_validator("starting_timestamp")
    @classmethod
    def _with_zone(cls, value: str | None) -> str | None:
        if value is not None and _moment(value).tzinfo is None:
            raise ValueError("must be a date and time with a zone, like 2026-01-31T00:00:00Z")
        return value

    @override
    def broken_rules(self) -> Iterator[str]:
        yield from super().broken_rules()
        access = self.access_key or self.access_key_secret_ref
        secret = self.secret_access_key or self.secret_access_key_secret_ref
        if self.region and not self.endpoint and not _REGION.fullmatch(self.region):
            yield "region: must be the code of an AWS region, like eu-central-1"
        if bool(access) != bool(secret):
            yield "accessKey and secretAccessKey belong together: set both or none"
        at_time = self.starting_position == "AT_TIMESTAMP"
        if at_time and not self.starting_timestamp:
            yield "startingPosition: AT_TIMESTAMP needs startingTimestamp"
        if self.starting_timestamp and not at_time:
            yield "startingTimestamp: is used only with startingPosition: AT_TIMESTAMP"
        if self.envelope and self.format != "json":
            yield "envelope: makes JSON objects with the data in base64: leave format out"

    def __getstate__(self) -> dict[Any, Any]:
        """Tasks use the region that the driver's environment names: theirs is another one."""
        state = super().__getstate__()
        return state | {"__dict__": state["__dict__"] | {"region": self.known_region}}

    @property
    def known_region(self) -> str | None:
        """The region as declared, else as the environment says."""
        return self.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")

    @property
    def begin(self) -> datetime | None:
        return _moment(self.starting_timestamp) if self.starting_timestamp else None

    @property
    def title(self) -> str:
        return f"the Kinesis stream {self.stream}"

    @override
    def address(self) -> Address:
        host = urlsplit(self.endpoint or "").netloc.rpartition("@")[2]
        connection = host.replace(":", "-").replace(".", "-") or self.region or "aws"
        return Address("kinesis", connection, None, self.stream)

    @override
    def spellings(self) -> tuple[str | SecretRef, ...]:
        """The endpoint, or the region where there is none."""
        return (self.endpoint or self.region or "aws",)


def _moment(text: str) -> datetime:
    """ValueError, which becomes a finding, for what is no date and time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a date and time with a zone, like 2026-01-31T00:00:00Z") from None
