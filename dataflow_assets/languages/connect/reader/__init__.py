"""Files of sink connectors -> flows, or everything that is wrong with them."""
