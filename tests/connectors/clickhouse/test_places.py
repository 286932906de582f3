"""Connection strings of ClickHouse, and what its errors mean."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

import devservers
from dataflow_assets.connectors.clickhouse import (
    ClickhouseSink,
    ClickhouseSource,
    client,
    dsn,
    errors,
)
from dataflow_assets.connectors.clickhouse.errors import ClickhouseFailure, ClickhouseKind
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.spark import system
from dataflow_assets.spec import hints


@pytest.mark.parametrize(
    ("text", "hosts", "secure"),
    [
        ("clickhouse://h:9000/d", (("h", 8123),), False),
        ("clickhouse://h:9440/d", (("h", 8443),), True),
        ("clickhouse://h:9000/d?secure=true", (("h", 8443),), True),
        ("clickhouse://h/d", (("h", 8123),), False),
        ("clickhouse://h/d?secure=true", (("h", 8443),), True),
        ("clickhouse://h:8443/d", (("h", 8443),), True),
        ("clickhouse://a:9000,b:9000/d", (("a", 8123), ("b", 8123)), False),
        ("clickhouse://[::1]:9000/d", (("::1", 8123),), False),
        ("http://h/d", (("h", 8123),), False),
        ("http://h:9000/d", (("h", 9000),), False),
        ("https://h/d", (("h", 8443),), True),
        ("https://h:443/d", (("h", 443),), True),
    ],
)
def test_hosts_and_ports(text: str, hosts: tuple[tuple[str, int], ...], secure: bool) -> None:
    place = dsn.parse(text)
    assert (place.hosts, place.secure, place.database) == (hosts, secure, "d")


@pytest.mark.parametrize(
    "text",
    [
        "clickhouse://u:p@h:9000/d?dial_timeout=10s&max_execution_time=60",
        "clickhouse://h:9000?username=u&password=p&database=d&dial_timeout=10s&max_execution_time=60",
        "http://u:p@h:8123/d?connect_timeout=10&max_execution_time=60&debug=true",
    ],
)
def test_the_spellings_of_the_original_s_documents_are_one_place(text: str) -> None:
    place = dsn.parse(text)
    assert (place.user, place.password, place.database) == ("u", "p", "d")
    assert (place.connect_seconds, place.settings) == (10, {"max_execution_time": "60"})


def test_what_is_not_said() -> None:
    place = dsn.parse("http://h")
    assert (place.user, place.password, place.database) == ("default", "", "default")
    assert (place.verify, place.compress, place.answer_seconds) == (True, True, 300)


def test_odd_passwords_are_taken_as_they_stand_and_never_shown() -> None:
    assert dsn.parse("clickhouse://u:p@ss:w%rd/x@h:9000/d").password == "p@ss:w%rd/x"
    assert dsn.parse("clickhouse://u:a%40b@h:9000/d").password == "a%40b".replace("%40", "@")
    assert "hush" not in repr(dsn.parse("http://u:hush@h/d"))
    assert dsn.scrub("refused: hush", "http://u:hush@h/d") == "refused: ***"


def test_another_native_port_is_refused_with_what_to_write() -> None:
    with pytest.raises(PermanentError, match=r"native protocol(.|\n)*http://user:password@h:PORT"):
        dsn.parse("clickhouse://u:hush@h:19000/d")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h:9000",
        "mysql://h/d",
        "http:///d",
        "http://h:x/d",
        "http://h/d?secure=maybe",
        "http://h/d?dial_timeout=soon",
        "http://h/d?compress=rar",
    ],
)
def test_what_cannot_be_read_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(PermanentError, match="connectionString: ") as caught:
        dsn.parse(text)
    assert not text or text not in str(caught.value)


def test_a_native_address_is_noted() -> None:
    assert dsn.parse("clickhouse://h:9000/d").note == (
        "clickhouse://h:9000 is reached over HTTP at h:8123"
    )
    assert not dsn.parse("clickhouse://h:8123/d").note
    assert not dsn.parse("http://h/d").note


def test_check_tells_that_a_native_address_is_reached_over_http() -> None:
    for end in (ClickhouseSource, ClickhouseSink):
        native = end(connection_string=SecretStr("clickhouse://u:hush@h:9440/d"), table="t")
        note = "clickhouse://h:9440 is reached over HTTP at h:8443"
        assert list(hints(native)) == [("connectionString", note)]
        assert not list(hints(end(connection_string=SecretStr("http://u:hush@h/d"), table="t")))


def test_names_and_spellings() -> None:
    native = "clickhouse://u:p@Click-House.example:9000/Shop"
    sink = ClickhouseSink(connection_string=SecretStr(native), table="t")
    assert sink.address().connection == "click_house_example_shop"
    assert dsn.servers("clickhouse://h:9000/d") == ("h:8123/d", "h:9000/d", "h/d")
    assert dsn.servers("http://h:18123/d") == ("h:18123/d",)


def test_error_codes_have_their_names(clickhouse: devservers.ClickHouse) -> None:
    known = errors.TRANSIENT | errors.REFUSED
    query = "SELECT errorCodeToName({code:UInt32})"
    connected = client.connect(clickhouse.dsn(), "tests")
    for name, code in known.items():
        assert client.query_rows(connected, query, {"code": code}) == [(name,)]


@pytest.mark.parametrize(
    ("query", "code", "kind"),
    [
        ("SELECT 1 FROM nowhere", 60, ClickhouseKind.PERMANENT),
        ("SELEC 1", 62, ClickhouseKind.PERMANENT),
        ("SELECT nowhere FROM system.one", 47, ClickhouseKind.PERMANENT),
        ("SELECT toUInt8('x')", 6, ClickhouseKind.REFUSED),
        ("SELECT sleep(3) SETTINGS max_execution_time = 1", 159, ClickhouseKind.TRANSIENT),
        (
            "SELECT 1 FROM numbers(10000000) GROUP BY number SETTINGS max_memory_usage = 100000",
            241,
            ClickhouseKind.TRANSIENT,
        ),
    ],
)
def test_what_the_server_refuses(
    clickhouse: devservers.ClickHouse, query: str, code: int, kind: ClickhouseKind
) -> None:
    connected = client.connect(clickhouse.dsn(), "tests")
    with pytest.raises(ClickhouseFailure) as caught:
        client.query_rows(connected, query)
    assert (caught.value.code, caught.value.kind) == (code, kind)
    assert "127.0.0.1" not in caught.value.message


def test_a_wrong_password_is_permanent_and_not_shown(clickhouse: devservers.ClickHouse) -> None:
    text = clickhouse.dsn().replace(clickhouse.password, "hush-hush")
    with pytest.raises(ClickhouseFailure) as caught:
        client.connect(text, "tests")
    assert caught.value.code == 516
    error = caught.value.error("opening x")
    assert isinstance(error, PermanentError)
    assert "check user and password" in str(error)
    assert "hush-hush" not in str(error)


def test_a_server_that_is_not_there_is_waited_for() -> None:
    (port,) = system.free_ports(1)
    with pytest.raises(ClickhouseFailure) as caught:
        client.connect(f"http://127.0.0.1:{port}/d", "tests")
    assert isinstance(caught.value.error("opening x"), TransientError)


def test_the_first_host_that_answers_is_used(clickhouse: devservers.ClickHouse) -> None:
    (port,) = system.free_ports(1)
    text = clickhouse.dsn().replace("127.0.0.1", f"127.0.0.1:{port},127.0.0.1")
    connected = client.connect(text, "tests")
    assert client.query_rows(connected, "SELECT 1") == [(1,)]


def test_a_stream_that_is_cut_off_is_no_end(clickhouse: devservers.ClickHouse) -> None:
    connected = client.connect(clickhouse.dsn(), "tests")
    query = "SELECT throwIf(number = 3000000) FROM numbers(10000000)"
    with pytest.raises(ClickhouseFailure) as caught, client.stream(connected, query) as batches:
        assert sum(batch.num_rows for batch in batches) > 0
    assert caught.value.kind is ClickhouseKind.TRANSIENT
