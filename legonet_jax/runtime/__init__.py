"""Running on the machine: jax's flags, threads, fixed blocks, compiled programs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
