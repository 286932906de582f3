"""The source: what a manifest declares, what it asks of a table."""
