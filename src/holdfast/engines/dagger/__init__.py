"""Runs on a Dagger engine. Compute mode only: a Dagger exec lives as long as the query that asked for it."""
