"""`python -m benchmarks`: see `_harness.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from _harness import main

if __name__ == "__main__":
    sys.exit(main())
