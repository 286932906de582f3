"""The sources: what a manifest declares, their sessions on the driver, what tasks read."""
