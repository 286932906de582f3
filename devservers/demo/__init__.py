"""`dataflow demo`: a shop on real servers, as living tables in Dagster.

`running` starts a demo and ends it; `demo` is what all demos have in common, `topics` what those
have whose shop sends messages. `orders` is that of `make demo`, `lake` that of `make demo-lake`,
`cdc` that of `make demo-cdc`. What happens is in `shop` and `lake_shop`; `shopkeeper` sends it to a
topic, `clerk` writes it into a database.
"""
