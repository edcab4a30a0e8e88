"""The commands: the only place that wires parts together and reads the environment."""
