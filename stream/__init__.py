"""Logs, records, the join, windows, and the fold with its drivers."""
