"""The fold: a model's whole state, and the one step that changes it."""
