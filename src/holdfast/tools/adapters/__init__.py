"""The toolset in the form of a framework. Thin: what a tool does is in the toolset."""
