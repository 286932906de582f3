"""Whole tables as DataFrames, for users' assets."""
