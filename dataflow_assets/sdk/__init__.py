"""What connectors build on."""
