"""The source: what a manifest declares, its session on the driver, its reads in tasks."""
