"""The source: what a manifest declares, its session on the driver, what tasks read."""
