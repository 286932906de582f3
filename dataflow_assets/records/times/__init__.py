"""Points in time, as manifests and records write them."""
