"""`python -m icl25_pi_dion` is the command `icl25-pi-dion`."""

import sys

from icl25_pi_dion.cli import main

if __name__ == "__main__":
    sys.exit(main())
