"""legonet-jax: exact machine unlearning that you can prove.

Modules, JAX included, are imported on first use; `__init__.pyi` lists the names.
"""

import lazy_loader

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
