"""The Dagster shell: assets, IO managers, sensors, jobs, definitions."""
