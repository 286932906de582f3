"""When a flow runs by a schedule, and what follows its runs; without Dagster."""
