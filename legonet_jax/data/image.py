"""Reads one image file as a square of pixels, in memory bounded by the file's size.

Image decoders are large programs, and the files may be hostile. So only the usual
formats are tried (Pillow would hand an EPS file, whatever its name, to Ghostscript,
which runs it), and the size that a file claims is compared with its length before
anything is decoded.
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
# Deflate, the best compressor among them, expands one byte to at most 1032. Images of
# one colour may compress even better, so 4096 x 4096 pixels are always allowed.
_PIXELS_PER_BYTE, _FREE_PIXELS = 1100, 2**24
# An image is scaled by its shorter side: 1 x 60,000 pixels would grow to 12 GB.
_MAX_RATIO = 100


def read_image(path: pathlib.Path, size: int) -> Images:
  """The central square of an image, [size, size, 3] uint8.

  Raises:
    DataError: if the file is damaged, is no image, or claims too many pixels.
    OSError: if it is missing or may not be read.
  """
  with untrusted.open_plain(path) as file:
    try:
      rgb = _decode(file)
    # On damaged files Pillow raises exceptions of any type.
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
    # Warnings are about large images and odd metadata; sizes are checked below.
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
