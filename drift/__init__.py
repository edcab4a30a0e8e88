"""Drift detectors on streams of losses."""
