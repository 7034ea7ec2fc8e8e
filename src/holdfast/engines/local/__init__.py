"""bubblewrap and the host's own runtimes: sandboxes without a daemon and without images."""
