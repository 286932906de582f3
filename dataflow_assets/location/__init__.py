"""Definitions for Dagster, made of folders, with their jobs, sensors and resources."""
