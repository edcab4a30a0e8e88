"""JSON records into typed columns, and what was refused."""
