"""Everyday mistakes in manifests: what `dataflow check` says leads to the fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from dataflow_assets.manifests.load import Loaded, load
from dataflow_assets.records.conditions.condition import Condition

KAFKA = 'type: kafka, config: {brokers: ["h:9092"], topic: orders}'
POSTGRES = "type: postgresql, config: {connectionString: 'postgresql://h/d', table: orders}"
DSN = "connectionString: 'postgresql://h/d', table: t"
CLICKHOUSE = "connectionString: 'http://h/d', table: t"
ICEBERG = "catalogURI: 'http://c:8181', namespace: n, table: t"


def manifest(source: str = KAFKA, sink: str = POSTGRES, more: str = "") -> str:
    return (
        "apiVersion: dataflow.dataflow.io/v1\nkind: DataFlow\nmetadata: {name: a}\n"
        f"spec:\n  source: {{{source}}}\n  sink: {{{sink}}}\n{more}"
    )


def steps(*entries: str) -> str:
    return manifest(more="  transformations:\n" + "".join(f"    - {entry}\n" for entry in entries))


def checked(tmp_path: Path, text: str) -> Loaded:
    (tmp_path / "größe.yaml").write_text(text, encoding="utf-8", newline="")
    return load(tmp_path / "größe.yaml")


def sink(name: str, config: str) -> str:
    return manifest(sink=f"type: {name}, config: {{{config}}}")


def source(config: str) -> str:
    return manifest(source=f"type: kafka, config: {{{config}}}")


def filtered(condition: str) -> str:
    return steps(f"{{type: filter, config: {{condition: {condition}}}}}")


QUOTES = "must be in quotes"
NEW_WORDS = "no operator"
MISTAKES = {
    "a step as text": (
        manifest(more="  transformations: filter\n"),
        ["must be a list, got text: begin each step with `- type: ...`"],
    ),
    "the address of a registry for its block": (
        source("brokers: ['h:1'], topic: t, format: avro, schemaRegistry: 'http://r:8081'"),
        ["must be a mapping, got text: write {url: ...}"],
    ),
    "a list of sinks": (
        manifest().replace(f"  sink: {{{POSTGRES}}}\n", f"  sink:\n    - {{{POSTGRES}}}\n"),
        ["must be a mapping, got a list: write `key: value`, without `- `"],
    ),
    "a list of topics": (
        source("brokers: ['h:1'], topic: [orders]"),
        ["must be text, got a list: write one value, without [ ] and `- `"],
    ),
    "a column without its type": (
        sink("postgresql", f"{DSN}, autoCreateTable: true, columns: {{id: , name: text}}"),
        ["has no value: write one, or remove the key"],
    ),
    "the name at the top": (
        manifest().replace("metadata: {name: a}", "name: a"),
        ["is required", "unknown key; did you mean metadata.name?"],
    ),
    "when for the condition of a route": (
        steps(f"{{type: router, config: {{routes: [{{when: $.a, sink: {{{KAFKA}}}}}]}}}}"),
        ["is required", "unknown key; did you mean condition?"],
    ),
    "a sink inside the source": (
        manifest(
            source=f"type: kafka, config: {{brokers: ['h:1'], topic: t}}, sink: {{{POSTGRES}}}"
        ),
        ["unknown key; sink is a key of spec: indent it as source is"],
    ),
    "a key of spec inside the settings of a sink": (
        sink("postgresql", f"{DSN}, onRejected: table"),
        ["unknown key; onRejected is a key of spec: indent it as sink is"],
    ),
    "a number as the only column": (
        sink("postgresql", f"{DSN}, upsertMode: true, conflictKey: 5"),
        ["must be text, got a number: put it in quotes"],
    ),
    "true for the block of certificates": (
        source("brokers: ['h:1'], topic: t, tls: true"),
        ["must be a mapping, got a boolean: write tls: {} for the system's own CAs, or name a CA"],
    ),
    "settings of a sink beside its type": (
        manifest(sink=f"type: postgresql, {DSN}"),
        [
            "is required",
            "unknown key; did you mean config.connectionString?",
            "unknown key; did you mean config.table?",
        ],
    ),
    "where to begin, in the words of others": (
        source("brokers: ['h:1'], topic: t, startingOffsets: beginning"),
        ["allowed values: group, earliest, latest, timestamp; did you mean earliest?"],
    ),
    "a time as a type": (
        steps("{type: cast, config: {spec: {t: timestamp}}}"),
        ["int64, float64, bool, null; a time stays text: the step timezone converts times"],
    ),
    "a type of another tool": (
        steps("{type: cast, config: {spec: {t: integer}}}"),
        ["allowed values: string, int64, float64, bool, null; did you mean int64?"],
    ),
    "between": (
        filtered("$.a between 1 and 5"),
        ["`between 1 and 5` is written $.path >= 1 && $.path <= 5"],
    ),
    "a function in a condition": (
        filtered("len($.a) > 0"),
        ["conditions have no functions"],
    ),
    "if for when": (
        steps("{type: filter, if: $.b, config: {condition: $.a}}"),
        ["unknown key; did you mean when?"],
    ),
    "a topic for an error sink": (
        manifest(more="  errors: orders.dlq\n"),
        ["must be a mapping, got text: write `type: ...` and `config: ...` below it"],
    ),
    "no apiVersion": (
        manifest().replace("apiVersion: dataflow.dataflow.io/v1\n", ""),
        ["is required: write dataflow.dataflow.io/v1"],
    ),
    "indentation": (
        manifest().replace("  source:", "   source:").replace("  sink:", "    sink:"),
        ["line 6 is indented by 4, line 5 by 3: keys of one block start in the same column"],
    ),
    "an exclamation mark": (
        filtered("!$.draft"),
        [f"a value that begins with `!` {QUOTES}; YAML tags are not supported"],
    ),
    "an exclamation mark and a space": (
        filtered("! $.draft"),
        [f"a value that begins with `!` {QUOTES}; YAML tags are not supported"],
    ),
    "a key with underscores": (
        source('brokers: ["h:9092"], topic: orders, consumer_group: x'),
        ["unknown key; did you mean consumerGroup?"],
    ),
    "a key in the singular": (
        steps("{type: mask, config: {field: email}}"),
        ["is required", "unknown key; did you mean fields?"],
    ),
    "a key twice": (
        manifest().replace("{name: a}", "{name: a}\nmetadata: {name: a}"),
        ["is written twice; first in line 3"],
    ),
    "an anchor at the top": (
        f"x-common: &pg {{a: 1}}\n{manifest()}",
        ["unknown key: define an anchor where it is first used"],
    ),
    "a tab": (
        manifest().replace("  source:", "\tsource:"),
        ["a tab cannot indent YAML: use spaces"],
    ),
    "another kind": (
        manifest().replace("kind: DataFlow", "kind: Dataflow"),
        ["unknown kind; did you mean DataFlow?"],
    ),
    "a nickname of a sink": (
        sink("postgres", DSN),
        ["unknown sink type; did you mean postgresql?"],
    ),
    "a sink that is not there": (
        sink("snowflake", DSN),
        ["unknown sink type; allowed: clickhouse, files, iceberg, kafka"],
    ),
    "no topic": (source('brokers: ["h:9092"]'), ["set topic or topicSecretRef"]),
    "a mechanism": (
        source('brokers: ["h:9092"], topic: orders, sasl: {mechanism: oauthbearer}'),
        ["is not one of the allowed values: plain, scram-sha-256, scram-sha-512"],
    ),
    "one name for two": (
        f"{manifest()}---\n{manifest()}",
        ["duplicate flow name default/a, also defined in "] * 2,
    ),
    "an open quote": (filtered('"$.a == \'x"'), ["column 8: a quote that is not closed"]),
    "two fields": (
        filtered('"$.a == $.b"'),
        ["column 8: fields cannot be compared with each other"],
    ),
    "a broken pattern": (
        filtered("\"$.a =~ '['\""),
        ["column 8: no regular expression: unterminated character set"],
    ),
    "a broken number": (
        filtered('"$.total > 1e"'),
        ["column 11: > compares numbers; allowed: a number such as 5 or -0.5"],
    ),
    "an asterisk": (
        steps("{type: mask, config: {fields: [a], maskChar: * }}"),
        [f"not valid YAML: a value that begins with `*` or `&` {QUOTES}"],
    ),
    "quotes inside quotes": (
        filtered('"$.s == "paid""').replace("{type: filter, config: {", "type: filter\n      c: {"),
        ["not valid YAML: text after the closing quote: use the other quotes inside"],
    ),
    "quotes inside quotes of a block": (
        manifest(more='  a: "$.s == "paid""\n'),
        ["not valid YAML: text after the closing quote: use the other quotes inside"],
    ),
    "single quotes inside single quotes": (
        manifest(more="  a: '$.a == 'x''\n"),
        ["not valid YAML: text after the closing quote: use the other quotes inside"],
    ),
    "no dashes between two": (
        manifest() + manifest(),
        ["a second manifest begins here: put `---` before it"],
    ),
    "a template": (
        manifest().replace("{name: a}", "{{ .Values.name }}"),
        ["a key is text; `{{ }}` of a template must be rendered first"],
    ),
    "true in quotes": (
        sink("postgresql", f"{DSN}, autoCreateTable: 'true'"),
        ["must be true or false, got text: remove the quotes"],
    ),
    "a list as text": (
        source("brokers: 'a:9092,b:9092', topic: t"),
        ["must be a list, got text: write it as a list, [a, b]"],
    ),
    "steps as a mapping": (
        manifest(more="  transformations: {type: mask}\n"),
        ["must be a list, got a mapping: begin each entry with `- `"],
    ),
    "a unit": (
        manifest(more="  maxBytesPerBatch: 64MiB\n"),
        ["must be a whole number, got text: write it without a unit"],
    ),
    "a duration without a unit": (
        source("brokers: ['h:1'], topic: t, consumerMaxWait: 5"),
        ["must be a duration with its unit, like 500ms or 1m30s"],
    ),
    "the step as a key": (
        steps("filter: {condition: $.a}"),
        ["unknown key; write `type: filter`, and its settings under `config`", "is required"],
    ),
    "a setting beside the type": (
        steps("{type: filter, condition: $.a}"),
        ["is required", "unknown key; did you mean config.condition?"],
    ),
    "rename": (
        steps("{type: rename}"),
        ["unknown step; did you mean replaceField (it renames fields)?"],
    ),
    "drop": (
        steps("{type: drop}"),
        ["unknown step; did you mean remove (fields) or filter (records)?"],
    ),
    "a group": (
        source("brokers: ['h:1'], topic: t, groupId: g"),
        ["unknown key; did you mean consumerGroup?"],
    ),
    "a host": (
        sink("postgresql", f"{DSN}, host: h"),
        ["unknown key; it is a part of connectionString: scheme://user:password@host/database"],
    ),
    "a schema": (
        sink("postgresql", f"{DSN}, schema: s"),
        ["unknown key; write table: schema.name"],
    ),
    "another apiVersion": (
        manifest().replace("dataflow.dataflow.io/v1", "v1", 1),
        ["is not one of the allowed values: dataflow.dataflow.io/v1"],
    ),
    "SASL_SSL alone": (
        source("brokers: ['h:1'], topic: t, securityProtocol: SASL_SSL"),
        ["SASL_SSL requires the blocks tls and sasl; add them"],
    ),
    "the key of a topic's records": (
        manifest(sink="type: kafka, config: {brokers: ['h:1'], topic: copies, key: id}"),
        ["unknown key; did you mean keyField?"],
    ),
    "a key that only a Secret has": (
        source("brokers: ['h:1'], topic: t, namespace: shop"),
        ["unknown key; allowed: "],
    ),
    "a sign in a password that begins a comment": (
        sink("postgresql", "connectionString: postgresql://u:pa #ss@h/d, table: t"),
        ["a `#` behind a space begins a comment: put the value in quotes"],
    ),
    "a percent sign": (
        manifest(more="  maxRejectedPercent: 10%\n"),
        ["must be a number, got text: write it without a unit, in percent"],
    ),
    "a port that is none": (
        sink("postgresql", "connectionString: 'postgresql://u:p@h:port/d', table: t"),
        ["the port must be a number from 1 to 65535, as in host:5432"],
    ),
    "a port that is too high": (
        sink("postgresql", "connectionString: 'host=h port=99999', table: t"),
        ["the port must be a number from 1 to 65535, as in host:5432"],
    ),
    "a port of ClickHouse that is too high": (
        sink("clickhouse", "connectionString: 'http://h:99999/d', table: t"),
        ["the port must be a number from 1 to 65535"],
    ),
    "parts of an address, and no address": (
        sink("postgresql", "host: h, user: u, password: p, schema: s, table: t"),
        [
            *["it is a part of connectionString: scheme://user:password@host/database"] * 3,
            "write table: schema.name",
        ],
    ),
    "an equals sign at the end of a very long condition": (
        filtered(f'"{"$.a == 1 && " * 1600}$.b = 1"'),
        ["cannot be read at column 19205: no operator: equality is written ==;"],
    ),
    "an empty topic": (
        source("brokers: ['h:1'], topic: ''"),
        ["topic is required: set topic or topicSecretRef"],
    ),
    "a template as a value": (
        source("brokers: ['h:1'], topic: {{ .Values.topic }}"),
        ["`{{ }}` of a template must be rendered first"],
    ),
    "a unit of a polled table": (
        manifest(
            source="type: postgresql, config: {connectionString: 'postgresql://h/d', table: t, "
            "pollInterval: 5s}"
        ),
        ["must be a whole number, got text: write it without a unit, in seconds"],
    ),
    "a source for a sink": (
        manifest(sink="type: postgresql-cdc, config: {table: t}"),
        ["postgresql-cdc is a source only; allowed: clickhouse, files, iceberg, kafka"],
    ),
    "jdbc": (
        sink("postgresql", "connectionString: 'jdbc:postgresql://h/d', table: t"),
        ["a JDBC address: remove `jdbc:`"],
    ),
    "a variable": (
        sink("postgresql", "connectionString: '${DATABASE_URL}', table: t"),
        ["environment variables are not expanded: use connectionStringSecretRef"],
    ),
    "a duration without end": (
        source(f"brokers: ['h:1'], topic: t, consumerMaxWait: {'9' * 400}s"),
        ["must be a duration of at most 24 days"],
    ),
    "a time-out without end": (
        sink("clickhouse", f"connectionString: 'http://h/d?dial_timeout={'9' * 400}', table: t"),
        ["dial_timeout is at most 604800 seconds"],
    ),
    "plain text in a Secret's data": (
        sink("postgresql", "connectionStringSecretRef: {name: pg, key: dsn}, table: t")
        + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: pg}\ndata: {dsn: 'postgresql://h'}\n",
        [
            "its value in secret default/pg cannot be read, see there",
            "is not text in base64; write plain text under stringData",
        ],
    ),
    "a Secret's data with an umlaut": (
        sink("postgresql", "connectionStringSecretRef: {name: pg, key: dsn}, table: t")
        + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: pg}\ndata: {dsn: 'schlüssel'}\n",
        [
            "its value in secret default/pg cannot be read, see there",
            "is not text in base64; write plain text under stringData",
        ],
    ),
    "a name with an umlaut": (
        manifest().replace("name: a", "name: aufträge"),
        ["must be letters a-z, digits,"],
    ),
    "a zone": (
        steps("{type: timezone, config: {timezone: Berlin, fields: [t]}}"),
        ["is not a time zone; write a name like Europe/Berlin, or +hh:mm"],
    ),
    "an engine": (
        sink("clickhouse", f"{CLICKHOUSE}, upsertMode: true, tableEngine: MergeTree"),
        ["upsertMode needs tableEngine ReplacingMergeTree"],
    ),
    "four rules at once": (
        sink(
            "clickhouse",
            f"{CLICKHOUSE}, upsertMode: true, autoCreateTable: true, tableEngine: MergeTree, "
            "conflictKey: id, orderBy: ts, deleteMode: hard, replacingVersionColumn: v",
        ),
        [
            "upsertMode needs tableEngine ReplacingMergeTree",
            "conflictKey is the ORDER BY already; leave orderBy out",
            "deleteMode and replacingVersionColumn exclude each other",
            "replacingVersionColumn requires tableEngine ReplacingMergeTree",
        ],
    ),
    "two rules at once": (
        source("brokers: ['h:1'], topic: 'a b', startingTimestamp: '2026-01-31T00:00:00Z'"),
        ["not a topic's name", "startingTimestamp is used only with startingOffsets: timestamp"],
    ),
    "a partition": (
        sink("iceberg", f"{ICEBERG}, autoCreateTable: true, partitionBy: weeks(x)"),
        ["unknown transform 'weeks'; write created_at, year(created_at)"],
    ),
    "a topic with a slash": (
        source("brokers: ['h:1'], topic: my topic/x"),
        ["not a topic's name: letters a-z, digits, `.`, `_` and `-` are allowed, up to 249"],
    ),
    "a topic with typographic quotes": (source("brokers: ['h:1'], topic: “o”"), ["not a topic's"]),
    "a pattern of topics": (source("brokers: ['h:1'], topic: 'orders.*'"), ["not a topic's name"]),
    "a topic of dots": (source("brokers: ['h:1'], topic: '..'"), ["not a topic's name"]),
    "one equals sign": (filtered("$.a = 'x'"), ["no operator: equality is written ==;"]),
    "three equals signs": (filtered("$.a === 1"), ["no operator: put a space after ==;"]),
    "no space": (filtered("$.a ==5"), ["no operator: put a space after ==;"]),
    "and": (filtered("$.a == 1 and $.b == 2"), ["text after a condition: `and` is written &&;"]),
    "or": (filtered("$.a or $.b"), ["no operator: `or` is written ||;"]),
    "not": (filtered("not $.a"), ["no operator: `not` is written !, before the field;"]),
    "IN": (filtered("$.a IN (1,2)").replace("$.a IN (1,2)", "'$.a IN (1,2)'"), ["in [a, b]"]),
    "LIKE": (filtered("$.a LIKE 'x%'"), ["`like` is written =~, with a regular expression;"]),
    "is null": (filtered("$.a is null"), ["for `is null` write !$.path;"]),
    "several topics": (
        source("brokers: ['h:1'], topics: [a, b]"),
        ["unknown key; a flow reads one topic: write topic, and a manifest for each topic"],
    ),
    "where to begin": (
        source("brokers: ['h:1'], topic: t, auto.offset.reset: earliest"),
        ["unknown key; did you mean startingOffsets?"],
    ),
    "a key that is like none of many": (
        source("brokers: ['h:1'], topic: t, zzz: 1"),
        [" more: `dataflow schema` lists all"],
    ),
    "a schedule": (
        manifest(more="  schedule: '*/5 * * * *'\n"),
        ["unknown key; a flow runs when its source has new data, within freshness seconds;"],
    ),
    "a dead letter queue": (
        manifest(more="  deadLetterQueue: {topic: x}\n"),
        ["unknown key; rejected records are a matter of errors (a sink for rejected records) and"],
    ),
    "several sinks": (
        manifest(more="  sinks: []\n"),
        ["unknown key; a flow has one sink; other targets are routes of a router step"],
    ),
    "columns as a list": (
        sink("postgresql", f"{DSN}, autoCreateTable: true, columns: [id]"),
        ["must be a mapping, got a list: write `key: value`, without `- `"],
    ),
    "a Secret as text": (
        sink("postgresql", "connectionStringSecretRef: shop, table: t"),
        ["must be a mapping, got text: write {name: ..., key: ...}"],
    ),
    "a Secret as in Kubernetes": (
        sink("postgresql", "connectionString: {valueFrom: {secretKeyRef: {name: s}}}, table: t"),
        ["a value of a Secret is written connectionStringSecretRef: {name: ..., key: ...}"],
    ),
    "no space after a colon": (
        manifest().replace("metadata: {name: a}", "metadata:\n  name:a"),
        ["must be a mapping, got text: put a space after the `:`"],
    ),
    "a million with an exponent": (
        manifest(more="  maxRecordsPerBatch: 1e6\n"),
        ["got a number: write it without a point or an exponent"],
    ),
    "a unit of time": (
        manifest(more="  freshness: 5s\n"),
        ["must be a whole number, got text: write it without a unit, in seconds"],
    ),
    "one condition for two sinks": (
        steps(
            *(
                "{type: router, config: {routes: [{condition: $.a, sink: {type: kafka, config: "
                f"{{brokers: ['h:1'], topic: {name}}}}}}}]}}}}"
                for name in ("x", "y")
            )
        ),
        ["an earlier route has this condition and another sink: change one of the two"],
    ),
    "any depth": (
        steps("{type: mask, config: {fields: [$..email]}}"),
        ["`..`, for any depth, is not supported"],
    ),
    "a converter of Kafka Connect": (
        steps("{type: timestampConverter}"),
        ["unknown step; did you mean timezone (it converts times)?"],
    ),
    "a folder outside": (
        sink("files", "path: /nowhere/out"),
        ["the folder is not below the folder DATAFLOW_FILES ("],
    ),
    "its own table": (
        manifest(source=POSTGRES),
        ["the flow reads what it writes: orders is also its source"],
    ),
    "a source that is nowhere, and a sink": (
        manifest(source="type: postgresql, config: {connectionString: 'a b', table: orders}"),
        ["neither a postgresql:// URL nor libpq's key=value text"],
    ),
    "its own topic": (
        manifest(sink=KAFKA),
        ["the flow reads what it writes: orders is also its source"],
    ),
    "its own source as error sink": (
        manifest(
            source=POSTGRES,
            sink=POSTGRES.replace("orders", "o"),
            more=f"  errors: {{{POSTGRES}}}\n",
        ),
        ["the flow reads what it writes: orders is also its source"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_so_that_it_can_be_fixed(tmp_path: Path, name: str) -> None:
    text, expected = MISTAKES[name]
    loaded = checked(tmp_path, text)
    said = [finding.message for finding in loaded.findings]
    assert len(said) == len(expected)
    for found, part in zip(said, expected, strict=True):
        assert part in found
    assert loaded.flows == ()


NOTES = {
    "slashes around a pattern": (
        filtered("$.a =~ /^x/"),
        ["the pattern matches only with its slashes: write it without them"],
    ),
    "a key without upserts": (
        sink("postgresql", f"{DSN}, conflictKey: id, softDeleteColumn: gone"),
        ["has no effect without upsertMode: true"] * 2,
    ),
    "a version that nobody compares": (
        sink("postgresql", f"{DSN}, upsertMode: true, upsertVersionColumn: v"),
        ["has no effect without upsertStrategy: ifNewer"],
    ),
    "columns of a table that is not made": (
        sink("postgresql", f"{DSN}, columns: {{a: text}}"),
        ["has no effect without autoCreateTable: true"],
    ),
    "marks where rows are removed": (
        sink("postgresql", f"{DSN}, upsertMode: true, deleteMode: hard, softDeleteColumn: gone"),
        ["has no effect with deleteMode: hard"],
    ),
    "an order of a table that is not made": (
        sink(
            "clickhouse", f"{CLICKHOUSE}, orderBy: id, partitionBy: toYYYYMM(t), columns: {{a: x}}"
        ),
        ["has no effect without autoCreateTable: true"] * 3,
    ),
    "partitions of a table that is not made": (
        sink("iceberg", f"{ICEBERG}, partitionBy: id, sortBy: id, columns: {{a: int}}"),
        ["has no effect without autoCreateTable: true"] * 3,
    ),
    "True": (
        filtered("$.a == True"),
        ["compares with the text True, not with JSON's: did you mean"],
    ),
    "null": (filtered("$.a != null"), ["compares with the text null: a null has the empty text"]),
    "true as a field": (filtered("'true'"), ["`true` is read as the field `true` of the record"]),
    "metdata": (filtered("metdata.topic == 'x'"), ["did you mean metadata, as in metadata.topic?"]),
    "in a when": (steps("{type: snakeCase, when: $.a == False}"), ["compares with the text False"]),
    "a variable of the environment": (
        source("brokers: ['h:1'], topic: t, consumerGroup: '${GROUP}'"),
        ["is read as it is written: environment variables are not expanded here;"],
    ),
    "several columns in one text": (
        sink("postgresql", f"{DSN}, upsertMode: true, conflictKey: 'id, tenant'"),
        ["is one column with a comma in its name: write several as a list, [id, tenant]"],
    ),
    "types of other systems": (
        sink("postgresql", f"{DSN}, autoCreateTable: true, columns: {{at: datetime, n: int64}}"),
        ["has types by the names of other systems; PostgreSQL's are at: timestamptz, n: bigint"],
    ),
    "a database before the schema": (
        sink("postgresql", "connectionString: 'postgresql://h/d', table: d.public.t"),
        ["is the table t of a schema that is called d.public: a database is named in"],
    ),
    "capital letters": (
        sink("postgresql", "connectionString: 'postgresql://h/d', table: public.Orders"),
        ['SQL must write it as public."Orders". Write it so here, too, if that is meant; else'],
    ),
    "the old group": (
        manifest().replace("dataflow.dataflow.io/v1", "dataflow.oss.io/v1"),
        ["an old name of dataflow.dataflow.io/v1"],
    ),
    "nothing in it": ("# later\n", ["no manifest in this file"]),
    "a Secret that is nowhere": (
        sink("postgresql", "connectionStringSecretRef: {name: pg, key: dsn}, table: t"),
        ["default/pg/dsn (DATAFLOW_SECRETS is not set) or from $DATAFLOW_SECRET__DEFAULT__PG__DSN"],
    ),
}


@pytest.mark.parametrize("name", NOTES)
def test_what_is_accepted_and_has_no_effect_is_noted(tmp_path: Path, name: str) -> None:
    text, expected = NOTES[name]
    loaded = checked(tmp_path, text)
    assert loaded.findings == ()
    said = [hint.message for hint in loaded.hints]
    assert len(said) == len(expected)
    for found, part in zip(said, expected, strict=True):
        assert part in found


QUIET = {
    "slashes that are meant": filtered("\"$.path =~ '/orders/'\""),
    "a block without values": sink("postgresql", f"{DSN}, tls: {{caFile: }}"),
    "a BOM and the line ends of Windows": "\ufeff" + manifest().replace("\n", "\r\n"),
    "empty documents": f"---\n---\n{manifest()}---\n",
    "anchors inside": manifest(
        source='type: kafka, config: {brokers: &all ["h:9092"], topic: orders}',
        sink="type: kafka, config: {brokers: *all, topic: copies}",
    ),
    "JSON": json.dumps(YAML(typ="safe").load(manifest())),
    "capital letters and an underscore in a name": manifest().replace("name: a", "name: Orders_V2"),
    "a number in quotes": filtered("\"$.a > '5'\""),
    "days of Iceberg": sink("iceberg", f"{ICEBERG}, autoCreateTable: true, partitionBy: days(x)"),
    "what has an effect": sink("postgresql", f"{DSN}, upsertMode: true, conflictKey: id"),
    "capital letters in quotes": sink(
        "postgresql", "connectionString: 'postgresql://h/d', table: 'public.\"Orders\"'"
    ),
    "a dot in quotes": sink(
        "postgresql", "connectionString: 'postgresql://h/d', table: '\"d.public\".t'"
    ),
    "another table": manifest(source=POSTGRES, sink=POSTGRES.replace("orders", "o")),
    "another server": manifest(source=POSTGRES, sink=POSTGRES.replace("//h/", "//i/")),
    "another port": manifest(source=POSTGRES, sink=POSTGRES.replace("//h/", "//h:5433/")),
    "a query of its own table": manifest(
        source="type: postgresql, config: {connectionString: 'postgresql://h/d', query: select 1, "
        "changeTrackingColumn: id}",
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_right_is_not_noted(tmp_path: Path, name: str) -> None:
    loaded = checked(tmp_path, QUIET[name])
    assert (loaded.findings, loaded.hints) == ((), ())
    assert len(loaded.flows) == 1


def test_flows_in_a_circle_are_noted_at_each_of_them(tmp_path: Path) -> None:
    database = "type: postgresql, config: {connectionString: 'postgresql://h/d', table: "
    tables = ("orders", "copies", "archive")
    ways = [("a", 0, 1), ("b", 1, 0), ("c", 1, 2)]
    text = "---\n".join(
        manifest(f"{database}{tables[one]}}}", f"{database}{tables[other]}}}").replace(
            "{name: a}", f"{{name: {name}}}"
        )
        for name, one, other in ways
    )
    loaded = checked(tmp_path, text)
    assert [(hint.line, hint.message.partition(".")[0]) for hint in loaded.hints] == [
        (3, "flows in a circle: default/a -> default/b -> default/a"),
        (10, "flows in a circle: default/b -> default/a -> default/b"),
    ]
    assert len(loaded.flows) == 3


def test_the_components_of_a_dagster_project_are_not_manifests(tmp_path: Path) -> None:
    (tmp_path / "defs.yaml").write_text(
        "type: shop.components.Nightly\nattributes: {folders: [flows]}\n"
    )
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "a.yaml").write_text(manifest())
    loaded = load(tmp_path)
    assert (loaded.findings, loaded.hints, len(loaded.flows)) == ((), (), 1)


def test_a_manifest_without_its_kind_is_no_component(tmp_path: Path) -> None:
    text = manifest().replace("apiVersion: dataflow.dataflow.io/v1\nkind: DataFlow\n", "")
    assert [one.message for one in checked(tmp_path, text).findings] == ["is required, as text"]
    text = "type: kafka\nattributes: {}\n"
    assert [one.message for one in checked(tmp_path, text).findings] == ["is required, as text"]


def test_another_connector_of_kafka_connect_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.properties"
    path.write_text("connector.class=io.debezium.connector.mysql.MySqlConnector\n")
    (hint,) = load(path).hints
    assert hint.message.startswith("is another connector than com.justone.")


@pytest.mark.parametrize(
    "text",
    ["$.a == 'True'", "$.a == true", "$.metdata.x == 1", "metadata.topic == 'x'", "$.true", "meta"],
)
def test_conditions_that_mean_what_they_say(text: str) -> None:
    assert list(Condition.parse(text).remarks()) == []
