"""The sink: what a manifest declares, its session on the driver, its writers in tasks."""
