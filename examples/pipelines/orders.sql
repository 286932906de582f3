-- A pipeline of SingleStore, as it is: docs/reference/pipelines.md has all statements.
-- Orders of a stream of Kinesis land in the table `orders_pipeline` of the target that is named in
-- connections.yaml; the total of an order is computed beside its record.
CREATE INFERRED PIPELINE orders_pipeline
AS LOAD DATA KAFKACONNECT 'kafka-connector'
CONFIG '{
  "connector.class": "com.singlestore.kafka.connect.kinesis.KinesisSourceConnector",
  "kafka.topic": "orders",
  "kinesis.stream": "orders",
  "kinesis.region": "eu-central-1"
}'
CREDENTIALS '{
  "aws.access.key.id": "${env:ORDERS_ACCESS_KEY}",
  "aws.secret.key.id": "${env:ORDERS_SECRET_KEY}"
}'
BATCH_INTERVAL 1000
FORMAT AVRO;

ALTER TABLE orders_pipeline
ADD COLUMN total AS (JSON_EXTRACT_DOUBLE(FROM_BASE64(record::$data), 'total')) PERSISTED DOUBLE;

CREATE INDEX orders_by_total ON orders_pipeline (total);

START PIPELINE orders_pipeline;
