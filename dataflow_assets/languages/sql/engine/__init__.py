"""Flink's SQL on one row: types, expressions, functions, and the bytes that rows are made of.

Results are Flink's own. The text is read by the reader; here nothing knows of it.
"""
