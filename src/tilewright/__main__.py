"""`python -m tilewright` is the command line."""

import sys

from tilewright.driver.main import main

if __name__ == "__main__":
    sys.exit(main())
