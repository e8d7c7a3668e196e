"""``python -m icl25_sava``."""

import sys

from icl25_sava.cli import main

if __name__ == "__main__":
    sys.exit(main())
