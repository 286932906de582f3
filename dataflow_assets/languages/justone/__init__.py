"""JustOne: the properties of a Kafka Connect sink for PostgreSQL."""
