"""The sinks: what a manifest declares, their session on the driver, their writers in tasks."""
