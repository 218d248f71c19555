from . import (
  erase as erase,
  exact as exact,
  format as format,
  leftovers as leftovers,
  make as make,
  marks as marks,
  models as models,
  read as read,
  rows as rows,
  seals as seals,
  write as write,
)
