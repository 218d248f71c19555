"""What the tests of bad input share."""

from conftest import ids


def change(array, at, value):
  array = array.copy()
  array[at] = value
  return array


KNOWN = ids()[:3].tolist()
