"""The demo: real processes, real data, and what it shows at the end."""
