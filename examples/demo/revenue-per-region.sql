-- The same question as in daily_revenue.py, always up to date: what was paid in each region so far.
-- Flink's SQL, as it is: docs/reference/sql.md. The topic `orders` is read as a table of which each
-- message replaces the order of its key, so an order counts once, whatever its status becomes.
CREATE TABLE orders (
  id BIGINT,
  status STRING,
  total DECIMAL(10, 2),
  customer ROW<country STRING>,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = '127.0.0.1:19092',
  'properties.group.id' = 'revenue-per-region',
  'key.format' = 'csv', -- the key is the number as text
  'value.format' = 'json'
);

CREATE TABLE revenue_per_region (
  region STRING,
  orders BIGINT,
  revenue DECIMAL(38, 2),
  PRIMARY KEY (region) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'revenue_per_region',
  'properties.bootstrap.servers' = '127.0.0.1:19092',
  'key.format' = 'json',
  'value.format' = 'json'
);

INSERT INTO revenue_per_region
SELECT customer.country, COUNT(*), SUM(total)
FROM orders
WHERE status IN ('paid', 'shipped', 'delivered')
GROUP BY customer.country;
