"""The generated page docs/reference/sql.md."""
