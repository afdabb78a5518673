"""`python -m tilewright.driver.tvmc`."""

import sys

from tilewright.driver.tvmc.main import main

if __name__ == "__main__":
    sys.exit(main())
