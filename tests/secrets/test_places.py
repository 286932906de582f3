"""The four places of a secret, in their order, and what is said where none of them has it."""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from dataflow_assets.connectors.kafka import KafkaSource
from dataflow_assets.connectors.memory import MemoryOffsetSource
from dataflow_assets.connectors.postgresql.sink.sink import PostgresqlSink
from dataflow_assets.errors import PermanentError, TransientError
from dataflow_assets.flow import Branch, Flow
from dataflow_assets.manifests.load import load
from dataflow_assets.runs.redaction import mask
from dataflow_assets.secrets import SecretKey, SecretRef, Secrets, cluster, environment, resolve
from dataflow_assets.secrets.files import digest
from dataflow_assets.secrets.tls import pem
from tests.secrets.api import Api

REF = SecretRef(name="pg", key="dsn")
VARIABLE = "DATAFLOW_SECRET__SHOP__PG__DSN"
HEAD = """\
apiVersion: dataflow.dataflow.io/v1
kind: DataFlow
metadata: {name: a, namespace: shop}
spec:
  source: {type: memory-offsets, config: {store: s, topic: t}}
  sink:
"""
FLOW = (
    HEAD
    + """\
    type: postgresql
    config:
      connectionStringSecretRef: {name: pg, key: dsn, namespace: other}
      table: t
"""
)


@pytest.fixture
def places(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Secrets:
    """Each place has another value."""
    api.put("shop", "pg", dsn="of the API\n")
    (tmp_path / "mounts/shop/pg").mkdir(parents=True)
    (tmp_path / "mounts/shop/pg/dsn").write_text("mounted\n")
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path / "mounts"))
    monkeypatch.setenv(VARIABLE, "of the environment\n")
    return Secrets("shop", {("shop", "pg"): {"dsn": SecretStr("of the document\n")}})


def test_the_order_of_the_places(
    places: Secrets, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there is taken verbatim, with the newline at its end."""
    assert places.get(REF) == "of the API\n"
    api.secrets.clear()
    cluster.forget()
    assert places.get(REF) == "of the document\n"
    places = Secrets("shop")
    assert places.get(REF) == "mounted\n"
    (tmp_path / "mounts/shop/pg/dsn").unlink()
    assert places.get(REF) == "of the environment\n"
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(PermanentError) as caught:
        places.get(REF)
    assert str(caught.value) == (
        "failed to get secret shop/pg (key dsn): the Kubernetes API has no secret shop/pg, "
        "and no Secret document of that name is in the manifest's folder, "
        f"and DATAFLOW_SECRETS ({tmp_path}/mounts) has no file shop/pg/dsn of its own, "
        f"and the environment has no {VARIABLE}"
    )


def test_outside_of_a_cluster_no_api_is_asked(
    places: Secrets, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert places.get(REF) == "of the document\n"
    assert api.answers == []


def test_an_account_that_may_not_read_secrets_is_told_only_where_nothing_else_has_them(
    places: Secrets, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.readable.clear()
    assert places.get(REF) == "of the document\n"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv("DATAFLOW_SECRETS")
    with pytest.raises(PermanentError, match=r'API refused secret shop/pg: 403 secrets "pg" is f'):
        Secrets("shop").get(REF)


def test_a_key_that_the_secret_of_the_api_does_not_have(places: Secrets, api: Api) -> None:
    """The place that has the Secret decides: a document with the key would be another Secret."""
    api.put("shop", "pg", url="x", user="y")
    with pytest.raises(PermanentError) as caught:
        places.get(REF)
    assert str(caught.value) == (
        "key dsn not found in secret shop/pg of the Kubernetes API; it has the keys url, user"
    )


def test_a_value_that_is_no_text(places: Secrets, api: Api) -> None:
    api.secrets["shop", "pg"] = {"dsn": b"hunter2\xff"}
    with pytest.raises(PermanentError, match="is not UTF-8 text") as caught:
        places.get(REF)
    assert "hunter2" not in str(caught.value)


def test_a_token_that_is_not_accepted_is_no_right_that_is_missing(
    places: Secrets, api: Api
) -> None:
    """It is one of a moment: another place may have an older value."""
    api.token = "another"
    with pytest.raises(TransientError, match=r"shop/pg cannot be read from .+: 401 Unauthorized"):
        places.get(REF)


def test_masking_a_text_asks_no_api(api: Api) -> None:
    """Each line of a log is masked, with a lock held, also while the API is away."""
    api.put("shop", "pg", dsn="postgresql://u:hunter44@h/db")
    api.put("shop", "kafka", brokers="b:1", topic="t")
    flow = _flow()
    assert mask("it says hunter44", [flow]) == "it says hunter44"
    assert api.answers == []
    flow.resolve()
    asked = len(api.answers)
    cluster.forget()
    assert mask("it says hunter44", [flow]) == "it says ***"
    assert len(api.answers) == asked


PEM = "-----BEGIN X-----\n%d\n-----END X-----\n"


@pytest.mark.parametrize("form", ["value", "certificate"])
def test_a_mounted_secret_that_is_replaced_is_never_missing(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kubelet does it: a new folder, the link leads to it, the old folder is removed."""
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path))
    folder, over = tmp_path / "shop/pg", threading.Event()
    folder.mkdir(parents=True)
    (folder / "dsn").symlink_to("..data/dsn")

    def replaced(number: int) -> None:
        new, link = folder / f"..{number}", folder / "..data_tmp"
        new.mkdir()
        (new / "dsn").write_text(PEM % number)
        link.symlink_to(new.name)
        link.rename(folder / "..data")
        shutil.rmtree(folder / f"..{number - 1}", ignore_errors=True)

    def kubelet() -> None:
        for number in itertools.count(2):
            if over.is_set():
                return
            replaced(number)

    replaced(1)
    thread = threading.Thread(target=kubelet)
    thread.start()
    try:
        reads: dict[str, Callable[[], str]] = {
            "value": lambda: Secrets("shop").get(REF),
            "certificate": lambda: pem("shop/pg/dsn", "tls.caFile"),
        }
        found = [int(reads[form]().split()[2]) for _ in range(2000)]
    finally:
        over.set()
        thread.join()
    assert found == sorted(found)


def test_an_api_that_fails_is_asked_again_later(places: Secrets, api: Api) -> None:
    """Another place may have an older value: none is taken instead."""
    api.broken = 503
    with pytest.raises(TransientError, match=r"shop/pg cannot be read from .+: 503 the server is"):
        places.get(REF)
    api.broken = 0
    api.stop()
    with pytest.raises(TransientError, match=r"the Kubernetes API at .+ cannot be asked: "):
        places.get(REF)


def test_a_token_that_cannot_be_sent_is_not_shown(places: Secrets, api: Api) -> None:
    api.rotate("planted\ntwice")
    with pytest.raises(TransientError, match=r"service account in .+ is not one word") as caught:
        places.get(REF)
    assert "planted" not in str(caught.value)
    assert api.answers == []


def test_the_token_is_read_for_each_request(places: Secrets, api: Api) -> None:
    assert places.get(REF) == "of the API\n"
    api.rotate("token-2")
    cluster.forget()
    assert places.get(REF) == "of the API\n"
    assert api.answers == [200, 200]


def test_an_api_of_another_authority_gets_no_token(places: Secrets, api: Api) -> None:
    (api.folder / "ca.crt").write_text((Path(__file__).parent / "foreign.crt").read_text())
    with pytest.raises(TransientError, match="CERTIFICATE_VERIFY_FAILED"):
        places.get(REF)
    assert api.answers == []


def test_an_answer_holds_for_some_seconds(
    places: Secrets, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sensors resolve all flows every few seconds: the API is not asked as often."""
    api.put("shop", "pg", dsn="old", user="me")
    assert places.get(REF) == "old"
    assert places.get(SecretRef(name="pg", key="user")) == "me"
    api.put("shop", "pg", dsn="new", user="me")
    assert places.get(REF) == "old"
    assert api.answers == [200]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + cluster.SECONDS)
    assert places.get(REF) == "new"
    assert api.answers == [200, 200]


@pytest.mark.parametrize(
    ("listed", "allowed"),
    [("", False), ("others", False), ("a, other ,b", True), ("*", True)],
)
def test_other_namespaces_must_be_listed(
    listed: str, allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", listed)
    monkeypatch.setenv("DATAFLOW_SECRET__OTHER__PG__DSN", "postgresql://u@h/db")
    secrets, ref = Secrets("shop"), SecretRef(name="pg", key="dsn", namespace="other")
    (tmp_path / "a.yaml").write_text(FLOW)
    loaded = load(tmp_path)
    if allowed:
        assert secrets.get(ref) == "postgresql://u@h/db"
        assert loaded.findings == ()
        assert loaded.hints == ()
        return
    said = (
        "secret other/pg must not be used: it is in namespace other, the flow in shop; other "
        f"namespaces must be listed in DATAFLOW_SECRET_NAMESPACES ({listed or 'not set'}), "
        "separated by commas, or `*` for all"
    )
    with pytest.raises(PermanentError) as caught:
        secrets.get(ref)
    assert str(caught.value) == said
    (finding,) = loaded.findings
    assert (finding.line, finding.message) == (9, said)
    assert finding.path == "spec.sink.config.connectionStringSecretRef.namespace"


def test_names_of_variables() -> None:
    assert environment.variable(SecretKey("shop", "pg", "dsn")) == VARIABLE
    key = SecretKey("shop-eu", "pg.main", "the--password")
    assert environment.variable(key) == "DATAFLOW_SECRET__SHOP_EU__PG_MAIN__THE_PASSWORD"


def _flow() -> Flow:
    source = KafkaSource.model_validate(
        {
            "brokersSecretRef": {"name": "kafka", "key": "brokers"},
            "topicSecretRef": {"name": "kafka", "key": "topic"},
            "consumerGroup": "g",
        }
    )
    sink = PostgresqlSink.model_validate(
        {"connectionStringSecretRef": {"name": "pg", "key": "dsn"}, "table": "t"}
    )
    return Flow("shop", "a", source, (Branch(sink),), secrets=Secrets("shop"))


def test_all_that_is_missing_is_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_SECRET__SHOP__KAFKA__TOPIC", "orders")
    with pytest.raises(PermanentError) as caught:
        _flow().resolve()
    first, *lines = str(caught.value).splitlines()
    assert first == "2 values of Secrets are missing: shop/kafka/brokers, shop/pg/dsn"
    assert [line.partition(":")[0] for line in lines] == [
        "- failed to get secret shop/kafka (key brokers)",
        "- failed to get secret shop/pg (key dsn)",
    ]


def test_what_is_there_is_masked_although_other_values_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also a value that was replaced since: the message may be of the old one."""
    monkeypatch.setenv(VARIABLE, "postgresql://u:hunter22@h/db")
    assert mask("it says hunter22", [_flow()]) == "it says ***"
    monkeypatch.setenv(VARIABLE, "postgresql://u:hunter33@h/db")
    assert mask("it says hunter22, hunter33", [_flow()]) == "it says ***, ***"


def test_a_document_is_read_again_for_whoever_opens_the_flow_again(tmp_path: Path) -> None:
    """Somebody may be in the middle of writing the file: what was known stays."""
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: pg, namespace: shop}\n"
    (tmp_path / "a.yaml").write_text(FLOW.replace(", namespace: other", ""))
    file = tmp_path / "s.yaml"
    file.write_text(f"{secret}stringData: {{dsn: old}}\n")
    (flow,) = load(tmp_path).flows
    assert flow.secrets.get(REF) == "old"
    file.write_text(f"{secret}stringData: {{dsn: newer}}\n")
    assert flow.secrets.get(REF) == "newer"
    for text in ("", "kind: ["):
        file.write_text(text)
        assert flow.secrets.get(REF) == "newer"
    file.unlink()
    assert flow.secrets.get(REF) == "newer"
    assert "newer" not in repr(flow.secrets)


def test_a_flow_without_secrets_asks_nobody(api: Api) -> None:
    source = MemoryOffsetSource(store="s", topic="t")
    sink = PostgresqlSink.model_validate({"connectionString": "postgresql://u@h/db", "table": "t"})
    flow = Flow("shop", "a", source, (Branch(sink),), secrets=Secrets("shop"))
    assert replace(flow.resolve()) == flow
    assert api.answers == []


FILES = {
    "block tls": """\
    type: kafka
    config:
      brokers: [k:9092]
      topic: t
      tls: {caFile: FILE}""",
    "PostgreSQL's string": """\
    type: postgresql
    config: {connectionString: "postgresql://h/db?sslmode=verify-ca&sslrootcert=FILE", table: t}""",
    "ClickHouse's string": """\
    type: clickhouse
    config: {connectionString: "https://u@h/db?ca_cert=FILE", table: t}""",
    "Trino's authorities": """\
    type: trino
    config: {serverURL: "https://t:8443", catalog: c, schema: s, table: t, ca: FILE}""",
}


@pytest.mark.parametrize("sink", FILES.values(), ids=list(FILES))
@pytest.mark.parametrize("form", ["name", "path", "link"])
def test_a_file_of_another_namespace_must_be_listed(
    form: str, sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate's file is a Secret of its namespace, however it is named."""
    folder, mounts = tmp_path / "flows", tmp_path / "mounts"
    folder.mkdir()
    (mounts / "other/pg").mkdir(parents=True)
    (mounts / "other/pg/ca").write_text("secret")
    (tmp_path / "link").symlink_to(mounts / "other/pg/ca")
    monkeypatch.setenv("DATAFLOW_SECRETS", str(mounts))
    named = {"name": "other/pg/ca", "path": f"{mounts}/other/pg/ca", "link": f"{tmp_path}/link"}
    (folder / "a.yaml").write_text(HEAD + sink.replace("FILE", named[form]) + "\n")
    (finding,) = load(folder).findings
    said = "must not be used: it is in namespace other, the flow in shop"
    assert said in finding.message
    monkeypatch.setenv("DATAFLOW_SECRET_NAMESPACES", "other")
    loaded = load(folder)
    assert loaded.findings == ()
    (flow,) = loaded.flows
    monkeypatch.delenv("DATAFLOW_SECRET_NAMESPACES")
    with pytest.raises(PermanentError, match=said):
        flow.resolve()


def test_a_secret_may_not_name_a_file_of_another_namespace() -> None:
    """What is only known at run time is held against the same list."""
    secrets = Secrets(
        "shop", {("shop", "pg"): {"dsn": SecretStr("host=h sslrootcert=other/pg/ca")}}
    )
    sink = PostgresqlSink(connection_string_secret_ref=REF, table="t")
    with pytest.raises(PermanentError, match="in namespace other, the flow in shop"):
        resolve(sink, secrets)
    own = Secrets("other", {("other", "pg"): {"dsn": SecretStr("host=h sslrootcert=other/pg/ca")}})
    assert resolve(sink, own).connection_string is not None


def test_files_that_values_name_are_told_from_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absolute paths and places below the folder; all else counts for nothing, a gone file too."""
    monkeypatch.setenv("DATAFLOW_SECRETS", str(tmp_path))
    (tmp_path / "shop/pg").mkdir(parents=True)
    mounted, other = tmp_path / "shop/pg/crt", tmp_path / "own.crt"
    named = ["shop/pg/crt", str(other), "-----BEGIN X", "shop/pg/none", str(tmp_path), "NAME"]
    seen = [digest(named)]
    for file, text in ((mounted, "a"), (other, "a"), (mounted, "b"), (other, "b")):
        file.write_text(text)
        seen.append(digest(named))
    assert len(set(seen)) == 5
    mounted.write_text("a")
    assert digest(reversed(named)) != seen[-1]
    mounted.write_text("b")
    assert digest(reversed(named)) == seen[-1]
    assert digest(["shop/pg/none", "NAME"]) == digest([])
