"""Queries with state: a view is a source, whose parts were computed before they are read."""
