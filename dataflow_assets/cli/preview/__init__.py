"""What steps make of records, one by one: `dataflow preview`. Nothing is stored or moved."""
