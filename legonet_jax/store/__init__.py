"""The encoding store: each sample's encoding, made once, read, and erased."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
