"""Runs only those pickle instructions that a file of tensors needs.

A pickle is a program for a small machine with a stack. Python's machine imports and
calls whatever the program names, and allocates any memory it asks for. This machine
knows what `torch.save` writes (pickle protocol 2) and builds numbers, texts, tuples,
lists and dicts. It calls only functions in its table, and a file has a budget of bytes
and of steps.
"""

from collections.abc import Callable, Iterable, Mapping
import pickle
import struct
from typing import IO, Any, NamedTuple

from legonet_jax import errors
from legonet_jax.io import untrusted

# A tensor takes about 200 bytes and 30 steps. A step makes at most one object, so these
# bound memory and time, whatever the instructions are.
MAX_BYTES, MAX_STEPS = 16 << 20, 1 << 20
_MAX_NAME, _MAX_ARGUMENTS = 256, 8
# Larger numbers can be chosen to have equal hashes, which makes a dict take forever.
_MAX_KEY = 1 << 60


class Name(NamedTuple):
  """A name in a pickle; it is never imported."""

  module: str
  name: str


ORDERED_DICT = Name("collections", "OrderedDict")


class Machine:
  """Runs the consecutive pickles of a file, on one shared budget."""

  def __init__(
    self,
    file: IO[bytes],
    calls: Mapping[Name, Callable[..., object] | None],
    load: Callable[[object], object],
  ):
    """Makes a machine.

    Args:
      file: the file with the pickles.
      calls: the names that they may use, with the function to call; None if the name
        cannot be called.
      load: gives the object that a persistent id stands for.
    """
    self._file, self._calls, self._load = file, calls, load
    self._bytes, self._steps = MAX_BYTES, MAX_STEPS
    self._memo: dict[int, Any] = {}
    self._stack: list[Any] = []
    self._below: list[list[Any]] = []  # the stacks below each mark

  def run(self) -> Any:
    """The object that the next pickle makes.

    Raises:
      WeightsError: if it uses a name that is not in the table.
      UnpicklingError, EOFError, IndexError, KeyError, TypeError, ValueError: if torch
        does not write such pickles.
    """
    self._memo, self._stack, self._below = {}, [], []
    while (code := self._read(1)) != pickle.STOP:
      self._spend(1)
      if code not in _STEPS:
        raise pickle.UnpicklingError(f"instruction {code!r}, which torch never writes")
      _STEPS[code](self)
    return self._stack.pop()

  def _spend(self, steps: int) -> None:
    self._steps -= steps
    if self._steps < 0:
      raise pickle.UnpicklingError("too many instructions")

  def _read(self, count: int) -> bytes:
    self._bytes -= count
    if self._bytes < 0:
      raise pickle.UnpicklingError("too long")
    data = self._file.read(count)
    if len(data) != count:
      raise EOFError("ends too early")
    return data

  def _number(self, form: str) -> Any:
    (value,) = struct.unpack(form, self._read(struct.calcsize(form)))
    return value

  def _long(self) -> int:
    return int.from_bytes(self._read(self._number("B")), "little", signed=True)

  def _text(self, length: str, encoding: str) -> str:
    return self._read(self._number(length)).decode(encoding)

  def _line(self) -> str:
    line = self._file.readline(_MAX_NAME)
    self._bytes -= len(line)
    if not line.endswith(b"\n"):
      raise pickle.UnpicklingError("a name without an end")
    return line[:-1].decode()

  def _push(self, value: object) -> None:
    self._stack.append(value)

  def _pop(self, count: int) -> list[Any]:
    if len(self._stack) < count:
      raise IndexError("an empty stack")
    items = self._stack[-count:]
    del self._stack[-count:]
    return items

  def _mark(self) -> None:
    self._below.append(self._stack)
    self._stack = []

  def _since_mark(self) -> list[Any]:
    items, self._stack = self._stack, self._below.pop()
    return items

  def _put(self, form: str) -> None:
    self._memo[self._number(form)] = self._stack[-1]

  def _get(self, form: str) -> None:
    self._push(self._memo[self._number(form)])

  def _extend(self, items: list[Any]) -> None:
    _of_type(list, self._stack[-1]).extend(items)

  def _update(self, items: list[Any]) -> None:
    pairs = list(zip(items[::2], items[1::2], strict=True))
    _of_type(dict, self._stack[-1]).update(_to_dict(pairs))

  def _name(self) -> None:
    name = Name(self._line(), self._line())
    if name not in self._calls:
      raise errors.WeightsError(
        f"it asks to run '{untrusted.one_line('.'.join(name))}', which no file of"
        " weights needs; it may be malicious and was not loaded"
      )
    self._push(name)

  def _call(self) -> None:
    name, args = self._pop(2)
    if len(_of_type(tuple, args)) > _MAX_ARGUMENTS:
      raise TypeError("too many arguments")
    if _of_type(Name, name) == ORDERED_DICT:
      self._push(self._ordered_dict(*args))
      return
    call = self._calls[name]
    if call is None:
      raise TypeError("a call of something that is no function")
    self._push(call(*args))

  def _ordered_dict(self, items: object = None) -> dict[Any, Any]:
    """A new dict: empty, or from a list of pairs, as Python 2 writes it."""
    pairs = [] if items is None else _of_type(list, items)
    self._spend(len(pairs))  # one list can be used many times
    return _to_dict(pairs)

  def _build(self) -> None:
    """Drops the attributes of a dict; torch keeps version numbers in them."""
    self._pop(1)
    _of_type(dict, self._stack[-1])


def _of_type(kind: type, value: Any) -> Any:
  if type(value) is not kind:
    raise TypeError(f"a {type(value).__name__} in the place of a {kind.__name__}")
  return value


def _to_dict(pairs: Iterable[Any]) -> dict[Any, Any]:
  """A dict whose keys are texts and whole numbers.

  Other keys can be nested so that hashing one of them takes forever.
  """
  result = {}
  for pair in pairs:
    if type(pair) not in (list, tuple):
      raise TypeError("a dict of something other than pairs")
    key, value = pair
    if type(key) is not str and abs(_of_type(int, key)) >= _MAX_KEY:
      raise TypeError("a key that is too large")
    result[key] = value
  return result


_STEPS: Mapping[bytes, Callable[[Machine], object]] = {
  pickle.PROTO: lambda m: m._read(1),
  pickle.NONE: lambda m: m._push(None),
  pickle.NEWTRUE: lambda m: m._push(True),
  pickle.NEWFALSE: lambda m: m._push(False),
  pickle.BININT: lambda m: m._push(m._number("<i")),
  pickle.BININT1: lambda m: m._push(m._number("<B")),
  pickle.BININT2: lambda m: m._push(m._number("<H")),
  pickle.LONG1: lambda m: m._push(m._long()),
  pickle.BINFLOAT: lambda m: m._push(m._number(">d")),
  pickle.BINUNICODE: lambda m: m._push(m._text("<I", "utf-8")),
  pickle.BINSTRING: lambda m: m._push(m._text("<I", "ascii")),
  pickle.SHORT_BINSTRING: lambda m: m._push(m._text("<B", "ascii")),
  pickle.EMPTY_TUPLE: lambda m: m._push(()),
  pickle.EMPTY_LIST: lambda m: m._push([]),
  pickle.EMPTY_DICT: lambda m: m._push({}),
  pickle.MARK: Machine._mark,
  pickle.TUPLE: lambda m: m._push(tuple(m._since_mark())),
  pickle.TUPLE1: lambda m: m._push(tuple(m._pop(1))),
  pickle.TUPLE2: lambda m: m._push(tuple(m._pop(2))),
  pickle.TUPLE3: lambda m: m._push(tuple(m._pop(3))),
  pickle.APPEND: lambda m: m._extend(m._pop(1)),
  pickle.APPENDS: lambda m: m._extend(m._since_mark()),
  pickle.SETITEM: lambda m: m._update(m._pop(2)),
  pickle.SETITEMS: lambda m: m._update(m._since_mark()),
  pickle.BINPUT: lambda m: m._put("<B"),
  pickle.LONG_BINPUT: lambda m: m._put("<I"),
  pickle.BINGET: lambda m: m._get("<B"),
  pickle.LONG_BINGET: lambda m: m._get("<I"),
  pickle.GLOBAL: Machine._name,
  pickle.BINPERSID: lambda m: m._push(m._load(*m._pop(1))),
  pickle.REDUCE: Machine._call,
  pickle.BUILD: Machine._build,
}
