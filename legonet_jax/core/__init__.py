"""The model: from a table of samples to a state, and from one state to the next."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
