"""Change data capture: the stream of a logical replication slot, and the snapshot before it."""
