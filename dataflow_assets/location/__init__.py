"""Definitions for Dagster: definitions made of folders, with their jobs, sensors and resources."""
