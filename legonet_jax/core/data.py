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
from legonet_jax.core import ids as ids_lib
from legonet_jax.core.samples import Samples

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


def make_data(samples: Samples, rows: int | None = None) -> Data:
  """The samples on the device, in the order of their ids.

  Args:
    samples: N samples, from `make_samples`.
    rows: how many rows the table has, at least N; N if not given.
  """
  count = len(samples.ids)
  more = 0 if rows is None else rows - count
  if more < 0:
    raise errors.SampleError(
      f"{count} samples do not fit in {rows} rows; give at least as many rows"
    )
  return Data(
    jnp.asarray(np.pad(samples.codes, ((0, more), (0, 0)))),
    jnp.asarray(np.pad(samples.labels, (0, more))),
    jnp.asarray(
      np.pad(ids_lib.to_words(samples.ids), ((0, more), (0, 0)), constant_values=NO_ID)
    ),
  )


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
  return Data(
    data.codes.at[rows].set(codes, mode="drop"),
    data.labels.at[rows].set(labels, mode="drop"),
    data.ids.at[rows].set(ids, mode="drop"),
  )


def erase(data: Data, rows: jax.Array) -> Data:
  """The table with the samples in `rows` [R] overwritten; forget them first."""
  return Data(
    data.codes.at[rows].set(0, mode="drop"),
    data.labels.at[rows].set(0, mode="drop"),
    data.ids.at[rows].set(NO_ID, mode="drop"),
  )
