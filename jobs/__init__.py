"""What this location does by itself beside its flows."""
