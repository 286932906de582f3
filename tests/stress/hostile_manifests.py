# ruff: noqa: E501 - tables of values
"""Manifests that nobody should write: real ones with hostile values, keys, names and YAML."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from functools import cache

from tests import ROOT

PLANTED = "planted-outside-7f3a"
EXAMPLES = ROOT / "examples"

NAMES = (
    *("a", "", ".", "..", "...", "..data", "/", "/etc", "/etc/hostname", "../outside", "a/b", "~"),
    *("../../outside", "../../../outside", "../../../../outside", "default", "pg", "dsn", "out"),
    *("far", "etc", "hostname", "..2026", "..data/dsn", "a\\b", "a\x00b", "a\nb", " a", "a ", "é"),
    *("%2e%2e", "file:///etc/hostname", "C:\\x", "\u202e", "ﬁ", "a" * 253, "a" * 254, "a" * 9_000),
    *("${HOME}", "$(id)", "`id`", "{{x}}", "'", '"', "a;b", "a--b", "nul", "True", "-", "_", "A.b"),
    *("😀", "\ud83d", "\u0661", "secrets/../../outside", "pg/../../..", "con", "*", "?", "[a]"),
)
VALUES = (
    *("~", "null", "true", "no", "0", "-1", "1e999", ".inf", ".nan", "0x7f", "9" * 30, "9" * 5_000),
    *("1.5", "''", '""', "[]", "{}", "[[]]", "[{}]", "[null]", "[1, a]", "{a: 1}", "{'': ''}"),
    *("!x", "!", "! a", "!!int x", "!!binary eA==", "!!set {a}", "!!python/object:os.x {}", "&a 1"),
    *("*a", "*", "&", "@a", "`a`", "%a", "- a", "? a", ": a", "a: b", "|", ">", "'", '"', "{", "["),
    *("2026-01-01", "2026-01-01T00:00:00Z", "5s", "5", "1h" * 500, "64MiB", "a,b", "[a, a, a]"),
    *("postgresql://u:p@h/d", "host=h dbname=d", "jdbc:postgresql://h/d", "${X}", "http://h:1/d"),
    *("postgresql://h/d?sslrootcert=/etc/hostname", "postgresql://h/d?passfile=/etc/passwd"),
    *("postgresql://h/d?sslkey=default/pg/out", "postgresql://h/d?sslcert=default/pg/dsn"),
    *("postgresql://h/d?service=x", "postgresql://h/d?sslkeylogfile=/tmp/x", "postgresql://[::1"),
    *("postgresql://h:99999999/d", "postgresql://%zz@h/d", "postgresql://h/d?options=-c%20a"),
    *(
        "file:///etc/passwd",
        "clickhouse://h:9/d",
        "clickhouse://h:x/d",
        "clickhouse://h/d?secure=x",
    ),
    *("http://[/d", "https://h:99999999/d", "http://h/d?dial_timeout=" + "9" * 400, "http://@/?"),
    *(
        "$.a == 'x'",
        "!$.a",
        "$.a == True",
        "(((",
        "$.a =~ '(a+)+$'",
        "$.a in [1, 2",
        "$." + "a." * 60,
    ),
    *(
        "$.a =~ '[" + "a" * 900,
        "!" * 70,
        "$.a" + "\\" * 99,
        "#(" * 30,
        "a.#(b==1)#.c",
        "a|@reverse",
    ),
    *(
        "bucket(16, id)",
        "day(",
        "id desc nulls",
        "decimal(99,1)",
        "list<struct<a:int>>",
        "a" * 3_000,
    ),
)
SOUP = (
    *(
        "a",
        "b:",
        ": ",
        "- ",
        "? ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "&a ",
        "*a ",
        "!a ",
        "!!str ",
        "|",
        ">",
    ),
    *(
        "'",
        '"',
        "\n",
        "\n  ",
        "\n    ",
        "\n---\n",
        "\n...\n",
        "\n%YAML 1.2\n",
        "#",
        "<<: ",
        "\t",
        "~",
    ),
    *(
        "\r",
        "\u2028",
        "\x85",
        "\ufeff",
        "\x00",
        "😀",
        "@",
        "`",
        "=",
        "0",
        "1e9",
        "true",
        "\\",
        "\\x",
    ),
    *("apiVersion: v1\n", "kind: Secret\n", "kind: DataFlow\n", "metadata:\n", "spec:\n", "data: "),
)
KEYS = (
    *("name", "namespace", "key", "type", "config", "when", "condition", "table", "topic", "query"),
    *(
        "brokers",
        "connectionString",
        "sslrootcert",
        "<<",
        "",
        " ",
        "a b",
        "__class__",
        "model_config",
    ),
    *(
        "spec",
        "kind",
        "apiVersion",
        "metadata",
        "data",
        "stringData",
        "$ref",
        "file",
        "passwordFile",
    ),
    *(
        "caFile",
        "certFile",
        "keyFile",
        "avroSchemaFile",
        "tls",
        "sasl",
        "a" * 2_000,
        "é",
        "1",
        "no",
    ),
)
REFS = ("connectionStringSecretRef", "tableSecretRef")


@dataclass(frozen=True)
class Text:
    """One file."""

    content: bytes
    name: str = "a.yaml"


@cache
def _real() -> tuple[str, ...]:
    """Manifests that load, and those of the original documentation."""
    files = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("*/*.yaml")])
    return tuple(file.read_text(encoding="utf-8") for file in files)


def encoded(text: str) -> Text:
    """As a file has it; half a pair of surrogates is kept."""
    return Text(text.encode("utf-8", "surrogatepass"))


def _quoted(text: str, rng: random.Random) -> str:
    """A value in some way to write it, be it the wrong one."""
    return rng.choice((json.dumps(text), json.dumps(text), text, f"'{text}'"))


def values(rng: random.Random) -> Text:
    """A real manifest with other values at some keys."""
    lines = rng.choice(_real()).splitlines()
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(lines))
        if found := re.match(r"(\s*(?:- )?[\w.]+:)( .*)?$", lines[at]):
            value = rng.choice(VALUES) if rng.random() < 0.6 else _quoted(rng.choice(NAMES), rng)
            lines[at] = f"{found[1]} {value}"
    return encoded("\n".join(lines))


def keys(rng: random.Random) -> Text:
    """A real manifest with lines that are gone, doubled, moved, or have another key."""
    lines = rng.choice(_real()).splitlines()
    for _ in range(rng.randrange(1, 6)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        changes = (
            "",
            lines[other],
            f" {lines[at]}",
            lines[at][1:],
            re.sub(r"[\w.]+:", f"{rng.choice(KEYS)}:", lines[at], count=1),
            f"{lines[at]}\n{lines[at]}",
        )
        lines[at] = rng.choice(changes)
    return encoded("\n".join(lines))


def soup(rng: random.Random) -> Text:
    """Signs of YAML in any order; sometimes very many of one."""
    parts = [rng.choice(SOUP) for _ in range(rng.randrange(1, 60))]
    if rng.random() < 0.02:
        parts.insert(rng.randrange(len(parts)), rng.choice(SOUP) * rng.choice((999, 20_000)))
    return encoded("".join(parts))


def cuts(rng: random.Random) -> Text:
    """Real manifests that are cut, joined, spliced with signs, or broken as bytes."""
    text = rng.choice(_real())
    at = rng.randrange(len(text))
    choice = rng.random()
    if choice < 0.3:
        return encoded(text[:at])
    if choice < 0.6:
        return encoded(text[:at] + rng.choice(SOUP) + text[at:])
    if choice < 0.8:
        return encoded(text[:at] + rng.choice(_real())[rng.randrange(50) :])
    raw = bytearray(text.encode())
    for _ in range(rng.randrange(1, 5)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return Text(bytes(raw))


def bombs(rng: random.Random) -> Text:
    """Aliases and merge keys inside each other, documents and lists without end."""
    depth, times = rng.randrange(2, 40), rng.randrange(1, 12)
    form = rng.choice(("[{}]", "{{<<: [{}]}}", "{{a: [{}]}}", "{{<<: {}}}", "{{a: {{<<: [{}]}}}}"))
    lines = [rng.choice(("a0: &a0 {x: 1}", "a0: &a0 [x]", "a0: &a0 {}", "a0: &a0 x"))]
    for number in range(1, depth):
        inner = ", ".join([f"*a{number - 1}"] * times)
        lines.append(f"a{number}: &a{number} {form.format(inner)}")
    if rng.random() < 0.05:
        return encoded(rng.choice(("---\na\n", "- a\n", "[", "- ", "a: 1\n", "{a: ")) * 60_000)
    return encoded(rng.choice(("\n", "\n", "\n---\n")).join(lines))


def names(rng: random.Random) -> Text:
    """Names of flows, topics, tables, connections and Secrets."""
    name, space, topic, table, other = (json.dumps(rng.choice(NAMES)) for _ in range(5))
    if rng.random() < 0.2:
        return Text(f"{other}: [{topic}, {{secret: {table}}}]".encode(), "connections.yaml")
    return encoded(
        "apiVersion: dataflow.dataflow.io/v1\nkind: DataFlow\n"
        f"metadata: {{name: {name}, namespace: {space}, labels: {{{other}: {other}}}}}\n"
        f"spec:\n  source: {{type: kafka, config: {{brokers: ['h:1'], topic: {topic}}}}}\n"
        f"  sink: {{type: postgresql, config: {{connectionString: 'postgresql://h/d', table: {table}}}}}"
        f"\n---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: {space}}}\n"
        f"stringData: {{{other}: {topic}}}\n"
    )


def references(rng: random.Random) -> Text:
    """SecretRefs to everywhere: only what is below the folder of secrets may be read."""
    near = (
        "pg",
        "dsn",
        "out",
        "etc",
        "far",
        "hostname",
        "default",
        "..data",
        "..2026",
        "..outside",
    )
    refs = []
    for field in REFS:
        parts = {key: rng.choice(NAMES if rng.random() < 0.5 else near) for key in ("name", "key")}
        if rng.random() < 0.5:
            parts["namespace"] = rng.choice((*NAMES, "default", "default"))
        refs.append(f"{field}: {json.dumps(parts)}")
    if rng.random() < 0.3:
        place = "/".join(rng.choice((*near, "..", "")) for _ in range(3))
        option = rng.choice(("sslrootcert", "sslkey", "sslcert", "passfile", "service", "sslcrl"))
        refs[0] = f"connectionString: 'postgresql://h/d?{option}={place}'"
    return encoded(
        "apiVersion: dataflow.dataflow.io/v1\nkind: DataFlow\nmetadata: {name: a}\n"
        "spec:\n  source: {type: kafka, config: {brokers: ['h:1'], topic: t}}\n"
        f"  sink: {{type: postgresql, config: {{{', '.join(refs)}}}}}\n"
    )
