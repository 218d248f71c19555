"""D on the device: a table of samples whose rows may be filled and blanked.

The number of rows is fixed, so that no request compiles anything. Rows beyond the
samples are padding, where samples can come later (`insert`); the row of a forgotten
sample can be blanked (`erase`). A row has no meaning of its own: order and randomness
come from the sample's id.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from legonet_jax import errors

# The high word of an id is below 2^31.
NO_ID = np.uint32(0xFFFFFFFF)


class Data(NamedTuple):
  """A table of N rows.

  Attributes:
    codes: x [N, d] int8, mapped encodings (see `features`).
    labels: y [N] int32.
    ids: [N, 2] uint32, the high and low word of each stable id; all bits set in a row
      of padding.
  """

  codes: jax.Array
  labels: jax.Array
  ids: jax.Array


def is_sample(data: Data) -> jax.Array:
  """Which rows [N] hold a sample; the others are padding."""
  return data.ids[:, 0] != NO_ID


def insert(
  data: Data, rows: jax.Array, codes: jax.Array, labels: jax.Array, ids: jax.Array
) -> Data:
  """The table with samples put into rows of padding.

  Args:
    data: the table.
    rows: [R] rows that hold no retained sample; a row beyond the table is skipped.
    codes: [R, d] int8.
    labels: [R] int32.
    ids: [R, 2] uint32, ids that no other row has (see `ids.to_words`).
  """
  codes, labels, ids = (jnp.asarray(a) for a in (codes, labels, ids))
  for name, found, kind, like in (
    ("codes", codes, jnp.int8, data.codes),
    ("ids", ids, jnp.uint32, data.ids),
  ):
    if found.dtype != kind or found.shape[1:] != like.shape[1:]:
      raise errors.SampleError(
        f"new {name} are {found.dtype}{list(found.shape)}; give {jnp.dtype(kind)}"
        f" [R, {like.shape[1]}] (see features.encode_array and ids.to_words)"
      )
  return Data(
    data.codes.at[rows].set(codes, mode="drop"),
    data.labels.at[rows].set(labels.astype(jnp.int32), mode="drop"),
    data.ids.at[rows].set(ids, mode="drop"),
  )


def erase(data: Data, rows: jax.Array) -> Data:
  """The table with the samples in `rows` [R] overwritten; forget them first."""
  return Data(
    data.codes.at[rows].set(0, mode="drop"),
    data.labels.at[rows].set(0, mode="drop"),
    data.ids.at[rows].set(NO_ID, mode="drop"),
  )
