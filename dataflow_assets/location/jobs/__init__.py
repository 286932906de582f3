"""Jobs of flows, of lanes, of replays, and of tables that are kept small."""
