"""`python -m residue`: the same as the command `residue`."""

import sys

from residue.command import main

if __name__ == "__main__":  # the processes of a scan import this module too
    sys.exit(main())
