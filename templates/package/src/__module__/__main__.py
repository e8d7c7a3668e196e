"""`python -m __module__` is the command `icl25-__slug__`."""

import sys

from __module__.cli import main

if __name__ == "__main__":
    sys.exit(main())
