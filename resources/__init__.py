"""What this location gives all its assets, beside the Spark session and IO managers of flows."""

from dataflow_assets.location.resources.io_managers import DefaultIOManager

RESOURCES = {"io_manager": DefaultIOManager()}
"""For assets that name no other: small Python values are stored as files below DAGSTER_HOME."""
