"""From folders of manifests to flows, and everything that is wrong with them."""
