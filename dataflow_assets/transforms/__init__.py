"""Steps, one file each; found by their class's `type`."""
