"""``python -m tuner.selftest``."""

import sys

from tuner.selftest import main

if __name__ == "__main__":
    sys.exit(main())
