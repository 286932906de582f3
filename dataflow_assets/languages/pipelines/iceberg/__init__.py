"""Tables of SingleStore's pipelines in Iceberg, where steps fill what is computed."""
