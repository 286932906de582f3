"""One file (or folder) per system: its sources and sinks. Connectors do not know each other."""
