"""Upserts: the rows of a span merged into the data files."""
