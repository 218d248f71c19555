"""A model in service: run folders, a journal of requests, erasure, verification.

This package uses the core; the core never imports it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
