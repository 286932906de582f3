"""A text with every part of the grammar, and ways to spoil it."""

from __future__ import annotations

import re

from hypothesis import strategies as st

WITH = "'topic' = 't', 'properties.bootstrap.servers' = 'k:9092'"
EVERYTHING = f"""
SET 'table.local-time-zone' = 'Europe/Berlin'; SET dataflow.onRejected = fail;
SET 'dataflow.freshness' = '60'; USE CATALOG c;
CREATE TEMPORARY TABLE IF NOT EXISTS c.d.s (
  a BIGINT NOT NULL COMMENT 'x', `b c` STRING, n DECIMAL(10, 2), y BYTES, f FLOAT, d DATE,
  ts TIMESTAMP(3), l TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, r ROW<x INT, z STRING>,
  arr ARRAY<INT>, m MAP<STRING, INT>, big AS a * 10, p INT METADATA FROM 'partition' VIRTUAL,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) COMMENT 'x' WITH (
  'connector' = 'kafka', {WITH}, 'value.format' = 'json', 'key.format' = 'raw',
  'key.raw.charset' = 'UTF-8', 'key.raw.endianness' = 'big-endian', 'key.fields' = 'a',
  'value.json.timestamp-format.standard' = 'ISO-8601', 'value.fields-include' = 'EXCEPT_KEY',
  'scan.startup.mode' = 'timestamp', 'scan.startup.timestamp-millis' = '1000',
  'properties.group.id' = 'g', 'properties.security.protocol' = 'SASL_SSL',
  'properties.sasl.mechanism' = 'PLAIN',
  'properties.sasl.jaas.config' = 'X required username="u" password="${{env:P}}";'
);
CREATE TABLE o (k BIGINT, v STRING, w DOUBLE, PRIMARY KEY (k) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', {WITH.replace("'t'", "'o'")}, 'key.format' = 'csv',
  'value.format' = 'csv', 'value.csv.field-delimiter' = ';', 'value.csv.quote-character' = '"',
  'value.csv.escape-character' = '\\', 'value.csv.null-literal' = 'null',
  'properties.transaction.timeout.ms' = '60000', 'sink.parallelism' = '2'
);
CREATE TABLE q WITH ('topic' = 'q') LIKE o (INCLUDING ALL OVERWRITING OPTIONS);
CREATE TABLE db (k BIGINT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH (
  'connector' = 'postgresql', 'connectionString' = 'postgresql://u:p@h:5432/d', 'table' = 'p.t'
);
CREATE TABLE j (k BIGINT, v STRING) WITH (
  'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h:5432/d?sslmode=require&user=u',
  'table-name' = 'j', 'password' = '${{env:P}}', 'sink.max-retries' = '3'
);
CREATE TABLE e (k BIGINT, v STRING, h MAP<STRING, BYTES> METADATA FROM 'headers' VIRTUAL) WITH (
  'connector' = 'kafka', {WITH.replace("'t'", "'e'")}, 'format' = 'avro-confluent',
  'avro-confluent.url' = 'http://r:8081', 'avro-confluent.basic-auth.user-info' = 'u:p',
  'scan.startup.mode' = 'specific-offsets', 'scan.bounded.mode' = 'timestamp',
  'scan.startup.specific-offsets' = 'partition:0,offset:42;partition:1,offset:300',
  'scan.bounded.timestamp-millis' = '1000', 'properties.auto.offset.reset' = 'earliest'
);
CREATE VIEW w (k, v, x) AS SELECT a + 1, UPPER(`b c`) || U&'\\0041', r.x FROM s WHERE a > 1;
EXECUTE STATEMENT SET BEGIN
INSERT INTO o (k, v) SELECT k, CASE WHEN x IS NULL THEN 'a''b' ELSE v END FROM w
  WHERE v NOT LIKE 'a%' ESCAPE '!' AND k BETWEEN 1 AND 2.5 OR k IN (1, 2) /* x */;
INSERT INTO q SELECT a, DATE_FORMAT(l, 'yyyy-MM-dd'), CAST(arr[1] AS DOUBLE) FROM
  (SELECT a, l, arr, -f AS g FROM s) AS i WHERE g < 1e3; -- x
INSERT INTO db SELECT a, JSON_VALUE(`b c`, '$.a' RETURNING STRING) FROM s
  WHERE EXTRACT(DAY FROM ts) = 1 AND TIMESTAMPDIFF(DAY, d, DATE '2020-12-30') > 3
  AND TRIM(BOTH 'x' FROM `b c`) <> '' AND REGEXP(`b c`, '^[a-z]+$')
  AND ts + INTERVAL '1' MONTH > TIMESTAMP '2020-01-01 00:00:00' AND CARDINALITY(ARRAY[1]) = 1;
INSERT INTO j SELECT k, JSON_QUERY(v, 'lax $.a' WITH ARRAY WRAPPER NULL ON EMPTY) FROM e
  UNION ALL (SELECT a, TO_TIMESTAMP(`b c`, 'yyyy-MM-dd[ HH]') || '' FROM s);
END;
"""
TEXTS = (
    *("", " ", "\\", "\\\\", "\\x", "\\u12", "\0", "\x0c", "\u2028", "\ud7ff", "é", "'", "''", "`"),
    *("9" * 5000, "-1", "1e999999", "1e999999999", "nan", "inf", "٣", "0" * 20, "1_000"),
    *("${env:}", "${secrets:a}", "${x", "../../etc/passwd", "Europe", "(", "[", "a{99999999999}"),
    *("base64", "idna", "undefined", "rot13", "$[", "$." + "a." * 3000, "yyyy" * 900, "'"),
    *("://", "http://[", "[::1]:1", "k:99999", "null", "json", "avro", "raw", "csv", "kafka"),
    *("upsert-kafka", "postgresql", "iceberg", "clickhouse", "jdbc", "true", "a;b", ";", ","),
)
"""What may be written between quotes."""
PIECES = (*TEXTS, "/*+ OPTIONS('a' = 'b') */", "/*", "--", "U&'\\D800'", "U&'\\+FFFFFF'", '"', "\n")
_TEXT = re.compile(r"'(?:[^']|'')*'")


@st.composite
def spoilt(draw: st.DrawFn, text: str = EVERYTHING) -> str:
    """The text with words and symbols left out, doubled, exchanged, or other texts in quotes."""
    pieces = re.findall(r"'(?:[^']|'')*'|\w+|\s+|[^\w\s]", text)
    quoted = [at for at, piece in enumerate(pieces) if _TEXT.fullmatch(piece)]
    for _ in range(draw(st.integers(1, 5))):
        at, other = (draw(st.integers(0, len(pieces) - 1)) for _ in range(2))
        way = draw(st.sampled_from(["drop", "twice", "exchange", "insert", "text"]))
        if way == "text":
            value = draw(st.sampled_from(TEXTS)).replace("'", "''")
            pieces[draw(st.sampled_from(quoted))] = f"'{value}'"
        elif way == "insert":
            pieces[at] += draw(st.sampled_from(PIECES))
        else:
            changed = {"drop": "", "twice": pieces[at] * 2, "exchange": pieces[other]}
            pieces[at] = changed[way]
    return "".join(pieces)
