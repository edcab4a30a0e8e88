"""Snapshots: the data-only codec, and the stores that keep versions, roles and journals."""
