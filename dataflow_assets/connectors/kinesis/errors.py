"""Meanings of the errors of AWS's client for the run, judged by their code or their HTTP status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from dataflow_assets.errors import DataflowError, PermanentError, TransientError
from dataflow_assets.sdk.server_failure import ServerFailure

_LONGEST = 500
_CREDENTIALS = "check the credentials of the flow and what they may do with the stream"
_ADVICE = {
    "ResourceNotFoundException": "create the stream, or correct stream, region and endpoint",
    "InvalidArgumentException": "was the stream deleted and re-created, or is the time at which "
    "the flow begins still to come?",
    "NoRegion": "set region, or AWS_REGION",
    "NoCredentials": "set accessKeySecretRef and secretAccessKeySecretRef, or give the machine or "
    "pod a role that may read the stream",
}
_DENIED = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
        "KMSAccessDeniedException",
        "KMSDisabledException",
        "KMSInvalidStateException",
        "KMSNotFoundException",
        "KMSOptInRequired",
    }
)
_LATER = frozenset(
    {
        "ExpiredIteratorException",
        "InternalFailure",
        "InternalFailureException",
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestTimeout",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
    }
)
THROTTLED = frozenset(
    {
        "KMSThrottlingException",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "Throttling",
        "ThrottlingException",
    }
)
"""Another reader of the shard has used up what a shard gives in a second."""
EXPIRED = "ExpiredIteratorException"
"""An iterator is good for five minutes."""


class KinesisFailure(ServerFailure):
    """One error of the service, or of the way to it (`status` None)."""

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        self.code, self.status = code, status
        self.message = " ".join(message.split())[:_LONGEST]
        super().__init__(f"{code}: {self.message}")

    @property
    def is_denied(self) -> bool:
        """Returns whether the credentials were refused, or lack a permission."""
        return self.code in _DENIED or self.status == 403

    @property
    def transient(self) -> bool:
        if self.is_denied or self.code in _ADVICE:
            return False
        return self.code in _LATER or self.status is None or self.status >= 500

    @override
    def error(self, what: str) -> DataflowError:
        advice = _CREDENTIALS if self.is_denied else _ADVICE.get(self.code)
        text = f"{what}: {self.code}: {self.message}" + (f"; {advice}" if advice else "")
        return TransientError(text) if self.transient else PermanentError(text)


@contextmanager
def failing() -> Iterator[None]:
    from botocore import exceptions

    try:
        yield
    except exceptions.ClientError as error:
        details = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        raise KinesisFailure(
            str(details.get("Code", "")), str(details.get("Message", "")), status
        ) from None
    except exceptions.NoRegionError as error:
        raise KinesisFailure("NoRegion", str(error)) from None
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        raise KinesisFailure("NoCredentials", str(error)) from None
    except exceptions.BotoCoreError as error:
        raise KinesisFailure(type(error).__name__, str(error)) from None
