"""Types of systems and of Arrow: what the tables of several connectors share."""
