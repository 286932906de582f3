"""A table that JustOne's Kafka Connect sink has filled so far: its values, and its positions."""
