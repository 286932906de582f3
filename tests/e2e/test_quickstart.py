"""docs/quickstart.md as it stands: its manifest and its commands, with what they print.

Only addresses, names and times are this test's own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest

import devservers
from dataflow_assets.manifests.load import load
from tests import ROOT
from tests.e2e.flows import Command

pytestmark = pytest.mark.e2e

PAGE = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
MANIFEST, SECURED = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
FILE = "flows/orders.yaml"
SPARK = "starting Spark"
ADDRESS = "kafka.example.com:9092"
DATABASE = "postgresql://flows:change-me@db.example.com:5432/shop"
(SENDING,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def steps() -> Iterator[tuple[str, list[str]]]:
    """Each command of the page with the lines that it prints."""
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        command, *printed = block.splitlines()
        yield command, [_bare(line) for line in printed]


def _lines(text: str, own: Mapping[str, str]) -> list[str]:
    """As the page has them."""
    for one, other in own.items():
        text = text.replace(one, other)
    return [_bare(line) for line in text.splitlines() if line.strip()]


def _bare(line: str) -> str:
    """Without what differs each time, and how wide columns are."""
    line = re.sub(r"\b\d+(\.\d+)? (?=s\b)", "1 ", line)
    line = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*", "TIME", line)
    line = re.sub(r"\b[0-9a-f]{12}\b", "RUN", line)
    return " ".join(line.split())


def test_the_page_says_what_happens(
    tmp_path: Path,
    command: Command,
    kafka: devservers.Kafka,
    postgresql: devservers.PostgreSQL,
    schema: str,
) -> None:
    name = f"{schema}_orders"
    exec(SENDING.replace(ADDRESS, kafka.bootstrap).replace('"orders"', f'"{name}"'), {})  # noqa: S102
    here = {
        ADDRESS: kafka.bootstrap,
        DATABASE: postgresql.dsn(),
        "topic: orders": f"topic: {name}",
        "public.orders": f"{schema}.orders",
    }
    text = MANIFEST
    for one, other in here.items():
        assert one in text
        text = text.replace(one, other)
    path = tmp_path / FILE
    path.parent.mkdir()
    path.write_text(text)
    names = {f"kafka/127-0-0-1-{kafka.bootstrap.rpartition(':')[2]}": "kafka/kafka-example-com"}
    found = list(steps())
    assert len(found) >= 5
    for asked, printed in found:
        if asked.startswith("$ dataflow "):
            done = command.run(
                *shlex.split(asked.removeprefix("$ dataflow ").replace(FILE, str(path)))
            )
            assert done.returncode == 0, done.stdout + done.stderr
            own = {str(path): FILE, name: "orders", schema: "public", **names}
            lines, beside = (_lines(text, own) for text in (done.stdout, done.stderr))
            # Spark is there already.
            shown = [one for one in printed if one not in beside and SPARK not in one]
            assert lines[-len(shown) :] == shown, asked
        else:
            query = asked.removeprefix("shop=> ").replace("public.orders", f"{schema}.orders")
            with psycopg.connect(postgresql.dsn()) as connection:
                rows = connection.execute(query.encode()).fetchall()
            assert [" | ".join(map(str, row)) for row in rows] == printed


def test_the_blocks_for_encrypted_brokers_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    group = "      consumerGroup: orders-to-postgresql\n"
    secrets = "".join(f"  kafka{key}: x\n" for key in ("Ca", "User", "Password"))
    assert group in MANIFEST
    path.write_text(MANIFEST.replace(group, group + SECURED) + secrets)
    loaded = load(path)
    assert (loaded.findings, loaded.hints) == ((), ())
    (flow,) = loaded.flows
    assert flow.source_address.name == "orders"
