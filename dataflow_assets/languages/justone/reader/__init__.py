"""JustOne's Kafka Connect sink for PostgreSQL: its properties, and the worker's beside them."""
