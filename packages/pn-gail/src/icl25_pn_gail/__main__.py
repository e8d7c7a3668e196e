"""`python -m icl25_pn_gail` is the command `icl25-pn-gail`."""

import sys

from icl25_pn_gail.cli import main

if __name__ == "__main__":
    sys.exit(main())
