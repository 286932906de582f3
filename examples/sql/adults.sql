-- Flink's SQL, as it is: docs/reference/sql.md has the grammar, all options and all functions.
-- The users who are of age, in a compacted topic, and in a table of PostgreSQL, which must exist:
--   CREATE TABLE adults (id bigint PRIMARY KEY, name text, age int, since timestamptz)
SET 'table.local-time-zone' = 'UTC';

CREATE TABLE users (
  id BIGINT,
  name STRING,
  age INT,
  changed TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'users',
  'properties.bootstrap.servers' = '127.0.0.1:19092',
  'key.format' = 'json',
  'value.format' = 'json'
);

CREATE TABLE adults (
  id BIGINT,
  name STRING,
  age INT,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'adults',
  'properties.bootstrap.servers' = '127.0.0.1:19092',
  'key.format' = 'json',
  'value.format' = 'avro'
);

CREATE TABLE adults_in_postgresql (
  id BIGINT,
  name STRING,
  age INT,
  since TIMESTAMP_LTZ(3),
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'postgresql', -- an addition
  'connectionString' = '${env:SHOP_DATABASE}',
  'table' = 'public.adults'
);

EXECUTE STATEMENT SET BEGIN
INSERT INTO adults SELECT id, UPPER(name), age FROM users WHERE age >= 18;
INSERT INTO adults_in_postgresql SELECT id, name, age, changed FROM users WHERE age >= 18;
END;
