"""Addresses of servers over http and https: of manifests, and of Secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult, urlsplit

from dataflow_assets.errors import PermanentError

SCHEMES = ("http", "https")


def parts_of(value: str, example: str) -> SplitResult:
    """The parts of an address.

    Called by connectors when a manifest is read, and whenever a client is made, with all secrets in
    place.

    Args:
        value: the address, without blanks around it.
        example: an address, for the message.

    Raises:
        ValueError: the value is none; it is not shown, for it may have a password.
    """
    try:
        parts = urlsplit(value)
        known = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or any(map(str.isspace, value)):  # which are left out of the parts
        raise ValueError(f"must have a scheme and a host, like {example}")
    return parts


@contextmanager
def of_secret(option: str) -> Iterator[None]:
    """What is wrong with an address inside is the Secret's: a manifest's own was checked before.

    Called around `parts_of` whenever a client is made, with all secrets in place.

    Args:
        option: the key that holds the address, for the message.

    Raises:
        PermanentError: for each ValueError inside.
    """
    try:
        yield
    except ValueError as error:
        raise PermanentError(f"the secret of {option}SecretRef: the address {error}") from None
