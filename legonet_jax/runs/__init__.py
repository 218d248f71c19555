"""A model that lives: run folders, a journal of requests, erasure, verification.

Everything here stands around the core and is never imported by it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
