"""Solvers train adapters: `Ridge` by the closed form, `Sgd` as the paper does."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
