"""Declarative flow manifests as Dagster assets on PySpark, exactly once."""
