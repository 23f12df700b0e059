"""Environments: construction, checks and stepping."""
