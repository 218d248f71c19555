"""`python -m legonet_jax` is the command `legonet`."""

import sys

from legonet_jax.cli.main import main

sys.exit(main())
