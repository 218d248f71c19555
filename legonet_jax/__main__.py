"""`python -m legonet_jax` is the command `legonet`, where that is not on the path."""

import sys

from legonet_jax.cli.main import main

sys.exit(main())
