from . import (
  cifar as cifar,
  cifar_names as cifar_names,
  dataset as dataset,
  embedded as embedded,
  encodings as encodings,
  folder as folder,
  image as image,
  load as load,
  names as names,
  npz as npz,
  tfds as tfds,
)
from .cifar import load_cifar as load_cifar
from .dataset import (
  SPLITS as SPLITS,
  TEST as TEST,
  TRAIN as TRAIN,
  Dataset as Dataset,
  make_dataset as make_dataset,
  take as take,
)
from .embedded import load_embedded as load_embedded
from .folder import load_folder as load_folder
from .load import CifarSource as CifarSource, load_dataset as load_dataset
from .npz import load_npz as load_npz
from .tfds import load_tfds as load_tfds
