"""Tables of SingleStore's pipelines in ClickHouse, with columns that are MATERIALIZED."""
