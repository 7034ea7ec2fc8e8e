"""Compute mode: one-shot runs."""
