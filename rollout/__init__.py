"""Which lineage serves in which role: evidence, promotion policy, routing."""
