"""Rows and the bytes that Flink's formats make of them."""
