from . import (
  baselines as baselines,
  core as core,
  data as data,
  doctor as doctor,
  encoder as encoder,
  errors as errors,
  functional as functional,
  host as host,
  io as io,
  known_answers as known_answers,
  measures as measures,
  runs as runs,
  runtime as runtime,
  solvers as solvers,
  store as store,
)
from .core.config import LegoConfig as LegoConfig
from .core.model import Model as Model
from .core.prediction import (
  adapter_logits as adapter_logits,
  classify as classify,
  predict as predict,
  predict_images as predict_images,
)
from .core.samples import (
  Samples as Samples,
  append as append,
  drop as drop,
  make_samples as make_samples,
  select as select,
)
from .core.solver import Solver as Solver
from .encoder.encode import (
  ImageEncoder as ImageEncoder,
  encode_images as encode_images,
)
from .host.advance import Info as Info
from .host.convert import to_host as to_host
from .host.digest import digest as digest
from .host.requests import (
  fit as fit,
  heal as heal,
  learn as learn,
  unlearn as unlearn,
  update as update,
)
from .host.state import LegoState as LegoState
from .runtime.compile_cache import use_compile_cache as use_compile_cache
from .runtime.environment import environment as environment
from .solvers.ridge import Ridge as Ridge
from .solvers.settings import (
  config_from_json as config_from_json,
  config_to_json as config_to_json,
)
from .solvers.sgd import Sgd as Sgd
from .store.make import make_store as make_store
from .store.models import load as load, save as save
from .store.read import open_store as open_store

__version__: str
