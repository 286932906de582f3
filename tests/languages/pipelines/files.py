"""Files of SingleStore's pipelines, and what they need beside them."""

from __future__ import annotations

from pathlib import Path

from dataflow_assets.manifests.load import Loaded, load

CLASS = "com.singlestore.kafka.connect.kinesis.KinesisSourceConnector"
FIRST = """\
-- Enable the experimental feature
SET GLOBAL experimental_features_config = "kafka_connect_enabled=true";

-- Create Kinesis pipeline
CREATE INFERRED PIPELINE kinesis_pipeline
AS LOAD DATA KAFKACONNECT 'kafka-connector'
CONFIG '{
  "connector.class": "com.singlestore.kafka.connect.kinesis.KinesisSourceConnector",
  "aws.access.key.id": "<aws_access_key>",
  "aws.secret.key.id": "<aws_secret_key>",
  "kafka.topic": "kinesis-topic",
  "kinesis.stream": "my-kinesis-stream",
  "kinesis.region": "us-east-1",
  "tasks.max": 4
}'
CREDENTIALS '{}' -- AWS credentials are in CONFIG for Kinesis connector
FORMAT AVRO;

-- Start the pipeline
START PIPELINE kinesis_pipeline;
"""
"""The first example of SingleStore's page, as it is written there."""
COMPUTED = """
-- Create a computed column for better performance
ALTER TABLE kinesis_pipeline
ADD COLUMN status AS (JSON_EXTRACT_STRING(record, 'partitionKey')) PERSISTED STRING;

CREATE INDEX idx_status ON kinesis_pipeline(status);
"""
PERFORMANCE = """
SET GLOBAL pipelines_extractor_batch_size = 10000;
SET GLOBAL pipelines_extractor_max_batch_interval_ms = 1000;

ALTER TABLE kinesis_pipeline
ADD COLUMN customer_id AS (JSON_EXTRACT_STRING(record, 'customer_id')) PERSISTED INT;

CREATE INDEX idx_customer_id ON kinesis_pipeline(customer_id)
"""
"""What the page says of performance, with the pipeline's name."""
QUERIES = (
    """
-- Extract a specific field
SELECT
  topic,
  JSON_EXTRACT_STRING(record, 'fieldName') AS field_value
FROM kinesis_pipeline;
""",
    """
-- Filter based on JSON content
SELECT *
FROM kinesis_pipeline
WHERE JSON_EXTRACT_STRING(record, 'status') = 'active';
""",
    """
-- Extract multiple fields
SELECT
  topic,
  JSON_EXTRACT_STRING(record, 'customer_id') AS customer_id,
  JSON_EXTRACT_STRING(record, 'order_id') AS order_id,
  JSON_EXTRACT_STRING(record, 'timestamp') AS event_time
FROM kinesis_pipeline;
""",
)
"""The queries of the first example, as they are written there: a record has none of these names."""
OFFSETS = """
SELECT * FROM information_schema.PIPELINES_SOURCE_OFFSETS
WHERE PIPELINE_NAME = '<pipeline_name>'
"""
DISTRIBUTION = """
-- Check task distribution
SELECT
  TASK_ID,
  COUNT(*) as offset_count
FROM information_schema.PIPELINES_SOURCE_OFFSETS
WHERE PIPELINE_NAME = '<pipeline_name>'
GROUP BY TASK_ID;
"""
STATUS = """
SELECT
  PIPELINE_NAME,
  STATE,
  CONFIG_JSON
FROM information_schema.PIPELINES
WHERE PIPELINE_NAME = '<pipeline_name>'
"""
"""What the page asks information_schema."""
SECOND = """\
-- Enable the experimental feature
SET GLOBAL experimental_features_config = "kafka_connect_enabled=true";

-- Create the target table for parsed records
CREATE TABLE parsed_kinesis_stream (
  partitionKey BIGINT,
  sequence_number VARCHAR(255),
  shardId VARCHAR(255),
  data_base64 VARCHAR(255),
  parsed_data AS FROM_BASE64(data_base64) PERSISTED VARCHAR(255)
);

-- Create the stored procedure to process incoming records
CREATE OR REPLACE PROCEDURE parse_kinesis_stream(
  batch QUERY(topic VARCHAR(255), id JSON, record JSON)
)
AS
BEGIN
  INSERT INTO parsed_kinesis_stream (
    partitionKey,
    sequence_number,
    shardId,
    data_base64
  )
  SELECT
    record::$partitionKey,
    record::$sequenceNumber,
    record::$shardId,
    record::$data
  FROM batch;
END;

-- Create Kinesis pipeline with INTO PROCEDURE
CREATE PIPELINE kinesis_pipeline_to_proc
AS LOAD DATA KAFKACONNECT 'kafka-connector'
CONFIG '{
  "connector.class": "com.singlestore.kafka.connect.kinesis.KinesisSourceConnector",
  "aws.access.key.id": "<aws_access_key>",
  "aws.secret.key.id": "<aws_secret_key>",
  "kafka.topic": "kinesis-topic",
  "kinesis.stream": "my-kinesis-stream",
  "kinesis.region": "us-east-1",
  "tasks.max": 4
}'
CREDENTIALS '{}'
BATCH_INTERVAL 2500
INTO PROCEDURE parse_kinesis_stream
FORMAT AVRO (
  `topic` <- `topic`,
  `id` <- `id`,
  `record` <- `record`
);

-- Start the pipeline
START PIPELINE kinesis_pipeline_to_proc;
"""
"""The second one."""
FILLED = {"<aws_access_key>": "AKIAFIRST", "<aws_secret_key>": "second-key"}
"""What stands for the page's placeholders where no server is asked."""
TARGET = "target: postgresql://u:topsecret@db.example.com/shop\n"


def loaded(folder: Path, text: str, connections: str = TARGET) -> Loaded:
    """What a file comes to beside connections.yaml."""
    (folder / "one.sql").write_text(text)
    (folder / "connections.yaml").write_text(connections)
    return load(folder)


def filled(text: str) -> str:
    """An example of the page with keys."""
    for placeholder, value in FILLED.items():
        text = text.replace(placeholder, value)
    return text


def told(found: Loaded) -> list[str]:
    """The findings as `line:column: message`, what they are about behind it."""
    return [f"{one.line}:{one.column}: {one.message} ({one.path})" for one in found.findings]


def noted(found: Loaded) -> list[str]:
    """The notes likewise, with what they are about."""
    return [f"{one.line}:{one.column}: {one.path}: {one.message}" for one in found.hints]
