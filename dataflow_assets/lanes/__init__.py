"""Lanes: many flows in one process, with one Spark session."""
