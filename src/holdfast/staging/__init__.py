"""Large files that do not pass through a model: a NATS Object Store, from which and to which sandboxes stream."""
