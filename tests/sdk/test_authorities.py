"""Authorities of one's own are the only ones, and what is none is a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from urllib3 import HTTPSConnectionPool

from dataflow_assets.connectors.trino import TrinoSink
from dataflow_assets.connectors.trino.client import TrinoClient
from dataflow_assets.errors import PermanentError
from dataflow_assets.sdk.authorities import OwnAuthorities

CERTIFICATE = Path(__file__).parents[1] / "secrets" / "foreign.crt"
BROKEN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"


def test_the_usual_authorities_are_not_trusted_as_well() -> None:
    """`requests` names them for each connection."""
    pool: Any = HTTPSConnectionPool("trino", 8443)
    OwnAuthorities(CERTIFICATE.read_text()).cert_verify(pool, "https://trino:8443", True, None)
    assert pool.cert_reqs == "CERT_REQUIRED"
    assert (pool.ca_certs, pool.ca_cert_dir) == (None, None)


@pytest.mark.parametrize(
    ("ca", "said"),
    [
        (BROKEN, r"ca: its PEM blocks must be CERTIFICATE, and whole"),
        ("A" * 300, r"ca: the value is neither PEM text .* nor a file's name"),
        ("/etc/hostname", r"ca: /etc/hostname( holds no whole PEM block|: No such file)"),
        ("ns/trino/ca", r"ca: DATAFLOW_SECRETS has no file ns/trino/ca"),
    ],
)
def test_what_is_no_certificate_is_a_sentence(ca: str, said: str) -> None:
    """As a Secret has it: a value in the manifest is looked at when that is checked."""
    where = {"serverURL": "https://t:1", "catalog": "c", "schema": "s", "table": "t"}
    sink = TrinoSink.model_validate(where).model_copy(update={"ca": SecretStr(ca)})
    with pytest.raises(PermanentError, match=said) as caught:
        TrinoClient(sink, "tests")
    assert "AAAA" not in str(caught.value)


def test_a_file_of_certificates_is_read() -> None:
    where = {"serverURL": "https://t:1", "catalog": "c", "schema": "s", "table": "t"}
    sink = TrinoSink.model_validate(where | {"ca": str(CERTIFICATE)})
    TrinoClient(sink, "tests").close()
