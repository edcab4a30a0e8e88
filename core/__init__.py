"""Plain values that every layer shares: records, batches, schema, configuration, errors, clock."""
