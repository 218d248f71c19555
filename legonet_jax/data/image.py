"""One image file, as a square of pixels; no more memory than its size justifies.

Decoders are large programs fed by strangers. So only the formats of a dataset are tried
(Pillow would hand an EPS file, whatever its name, to Ghostscript, which runs it), and
the size that a file claims is compared with its length before anything is decoded.
"""

import os
import pathlib
from typing import BinaryIO
import warnings

import numpy as np
from PIL import Image, UnidentifiedImageError

from legonet_jax import errors
from legonet_jax.data.dataset import Images
from legonet_jax.io import untrusted

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"}
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
# Deflate, the best compressor among them, makes at most 1032 bytes of one. The rest is
# for pictures of one colour, which are honest: 4096 x 4096 needs no justification.
_PIXELS_PER_BYTE, _FREE_PIXELS = 1100, 2**24
# A picture is scaled by its shorter side: of 1 x 60,000 pixels, 12 GB would come.
_MAX_RATIO = 100


def read_image(path: pathlib.Path, size: int) -> Images:
  """The central square of an image, [size, size, 3] uint8.

  Raises:
    DataError: if the file is damaged, is no image, or is much larger than it looks.
    OSError: if it is not there or may not be read.
  """
  with untrusted.open_plain(path) as file:
    try:
      rgb = _decode(file)
    # Pillow raises whatever comes up: damaged files are not its main concern.
    except Exception as e:
      if isinstance(e, UnidentifiedImageError):
        why = "no image of a known kind"
      else:
        why = untrusted.one_line(e) or type(e).__name__
      raise errors.DataError(
        f"cannot read image {path} ({why}); mend or remove it"
      ) from None
  shorter = min(rgb.size)
  wide, high = (max(size, round(side * size / shorter)) for side in rgb.size)
  rgb = rgb.resize((wide, high), Image.Resampling.BILINEAR)
  left, top = (wide - size) // 2, (high - size) // 2
  return np.asarray(rgb.crop((left, top, left + size, top + size)))


def _decode(file: BinaryIO) -> Image.Image:
  with warnings.catch_warnings():
    # About large images and odd metadata; the sizes are checked below.
    warnings.simplefilter("ignore")
    with Image.open(file, formats=_FORMATS) as image:
      _check_size(image.size, os.fstat(file.fileno()).st_size)
      return image.convert("RGB")


def _check_size(sides: tuple[int, int], file_bytes: int) -> None:
  pixels = sides[0] * sides[1]
  allowed = max(_FREE_PIXELS, _PIXELS_PER_BYTE * file_bytes)
  if pixels > min(allowed, Image.MAX_IMAGE_PIXELS or allowed):
    raise errors.DataError(f"{pixels:,} pixels in {file_bytes:,} bytes")
  if min(sides) < 1 or max(sides) > _MAX_RATIO * min(sides):
    raise errors.DataError(f"{sides[0]} x {sides[1]} pixels is no picture's shape")
