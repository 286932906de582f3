"""`dataflow demo`: a shop on real servers, as living tables in Dagster.

`running` starts a demo and ends it; `demo` is what both demos have in common; `orders` is that of
`make demo`, `lake` that of `make demo-lake`; `shop` and `lake_shop` send the messages.
"""
