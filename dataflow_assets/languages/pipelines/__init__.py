"""SingleStore's pipelines: SQL that fills tables from topics, streams and connectors."""
