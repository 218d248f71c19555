"""Files: whole or not there, durable, locked, downloaded, and never trusted."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
