"""Tables of SingleStore's pipelines in PostgreSQL, with generated columns."""
