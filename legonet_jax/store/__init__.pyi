from . import (
  erase as erase,
  format as format,
  leftovers as leftovers,
  make as make,
  models as models,
  read as read,
  rows as rows,
  write as write,
)
