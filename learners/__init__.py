"""Learners: River, compiled; their scores; one protocol and a registry of kinds."""
