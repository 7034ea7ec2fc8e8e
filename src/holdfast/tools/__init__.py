"""What an agent is given: tools with a schema, a description for a model, and a call that never raises at it."""
