"""Tables that statements read and write: what connectors of databases share."""
