"""When a flow runs by a schedule and when it pauses, and what follows its runs; without Dagster."""
