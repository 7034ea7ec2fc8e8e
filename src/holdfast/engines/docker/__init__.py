"""Containers of a Docker daemon, with the guest as PID 1."""
