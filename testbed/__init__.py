"""The testbed: real engines for the tests, on a Debian machine with root and package registries only.

    testbed/up        brings Docker, images, a registry, Dagger, NATS and bubblewrap up, writes .testbed.json
    testbed/status    shows what is up
    testbed/down      stops what `up` started

Standard library only: it runs before any environment exists. Read `parts/__init__.py` first.
"""
