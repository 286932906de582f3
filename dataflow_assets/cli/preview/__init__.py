"""Results of the steps, record by record: `dataflow preview`. Nothing is stored or moved."""
