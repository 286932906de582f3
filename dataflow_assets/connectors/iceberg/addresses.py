"""Addresses of catalogs: checked, and as people know them. Without network."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from dataflow_assets.sdk.http_addresses import of_secret, parts_of


def check_address(value: str, example: str) -> None:
    """Raises ValueError where it is no address of http or https; the address is not shown.

    User and password in it would be shown in errors: credentials have options of their own.
    """
    if "@" in parts_of(value, example).netloc:
        raise ValueError(
            "must have no user and password, which errors would show: set basicAuth, bearerToken "
            "or oauth2ClientID"
        )


def with_host(value: str, example: str) -> str:
    """An address without the slash at its end. Raises ValueError where it is none of http."""
    if value:
        check_address(value, example)
    return value.rstrip("/")


def clean_address(value: str, option: str, example: str) -> str:
    """An address as clients take it: without spaces and newlines around it.

    Called whenever a client is made, with all secrets in place: only what a manifest says itself
    was checked before.

    Args:
        value: as the manifest or the Secret has it.
        option: the key that holds the address, for messages.
        example: an address, for messages.

    Raises:
        PermanentError: the value of the Secret is not an address.
    """
    address = value.strip()
    with of_secret(option):
        check_address(address, example)
    return address


def host_slug(address: str, *more: str | None) -> str:
    """The host of an address and other words, without user and password."""
    try:
        host = urlsplit(address).netloc.rpartition("@")[2]
    except ValueError:  # of a Secret, which is refused where it is used
        host = ""
    return slug(" ".join((host, *(word for word in more if word))))


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
