"""Rejected records: where they are kept, and how a replay takes them."""
