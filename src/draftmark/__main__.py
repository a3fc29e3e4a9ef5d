"""`python -m draftmark`."""

import sys

from draftmark.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
