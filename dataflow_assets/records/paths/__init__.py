"""Paths into records."""
