"""`python -m icl25_lp_conv` is the command `icl25-lp-conv`."""

import sys

from icl25_lp_conv.cli import main

if __name__ == "__main__":
    sys.exit(main())
