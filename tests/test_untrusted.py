"""Readers of files from outside: what is sound comes out, the rest is refused."""

import contextlib
import io
import os
import pathlib
import socket
import threading
import tracemalloc

from hostile_data import described, npy
import numpy as np
import pytest

from legonet_jax import errors
from legonet_jax.io import untrusted

READERS = {
  "bytes": untrusted.read_bytes,
  "text": untrusted.read_text,
  "json": untrusted.read_json,
  "npy": untrusted.read_npy,
  "npz": untrusted.read_npz,
  "hash": untrusted.sha256_of,
}
ARRAYS = {
  "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
  "in Fortran's order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
  "of the other byte order": np.arange(4, dtype=">i4"),
  "one number": np.array(5, np.int64),
  "nothing": np.zeros((0, 3), np.uint8),
  "text": np.array(["a", "bcd"]),
  "truth": np.array([True, False]),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "socket"])
def test_only_regular_files_are_opened(tmp_path, reader, kind):
  path = tmp_path / "x"
  if kind == "fifo":
    os.mkfifo(path)
  elif kind == "folder":
    path.mkdir()
  elif kind == "socket":
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(tmp_path):
      server.bind("x")  # an address has room for 107 bytes only
  before = os.listdir("/proc/self/fd")
  with pytest.raises(errors.DataError, match="not a regular file"):
    reader(path if kind != "device" else pathlib.Path("/dev/zero"), follow=True)
  assert os.listdir("/proc/self/fd") == before


def test_a_fifo_is_not_even_opened(tmp_path):
  """Whoever waits to fill it goes on waiting."""
  path = tmp_path / "x"
  os.mkfifo(path)
  opened = threading.Event()

  def fill():
    os.close(os.open(path, os.O_WRONLY))
    opened.set()

  thread = threading.Thread(target=fill)
  thread.start()
  with pytest.raises(errors.DataError):
    untrusted.read_bytes(path)
  assert not opened.wait(0.2)
  os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
  thread.join()


def test_links_are_followed_only_on_demand(tmp_path):
  (tmp_path / "x").write_bytes(b"abc")
  link = tmp_path / "link"
  link.symlink_to("x")
  assert untrusted.read_bytes(link) == b"abc"
  with pytest.raises(errors.DataError, match="symbolic link"):
    untrusted.read_bytes(link, follow=False)
  with pytest.raises(FileNotFoundError):
    untrusted.read_bytes(tmp_path / "nothing")


def test_a_limit_costs_no_memory(tmp_path):
  path = tmp_path / "x"
  path.write_bytes(b"abc")
  tracemalloc.start()
  assert untrusted.read_bytes(path, limit=1 << 32) == b"abc"
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert peak < 1 << 20
  with pytest.raises(errors.DataError, match="3 bytes, and at most 2"):
    untrusted.read_bytes(path, limit=2)


@pytest.mark.parametrize(
  ("content", "problem"),
  [
    (b"[" * 200_000, "nested too deeply"),
    (b'{"a":' * 200_000, "nested too deeply"),
    (b"[1]", "not a JSON object"),
    (b"{", "not JSON"),
    (b"", "not JSON"),
    (b'\xff\xfe{"a"', "not JSON"),
    (b'{"a": ' + b"9" * 100_000 + b"}", "not JSON"),
  ],
)
def test_bad_json_is_one_line(tmp_path, content, problem):
  path = tmp_path / "x.json"
  path.write_bytes(content)
  with pytest.raises(errors.DataError, match=problem) as info:
    untrusted.read_json(path)
  assert str(info.value).isprintable()
  assert len(str(info.value)) < 300


def test_what_is_no_text_is_refused(tmp_path):
  (tmp_path / "x").write_bytes(b"\xff\xfe\xfd")
  with pytest.raises(errors.DataError, match="not a text file"):
    untrusted.read_text(tmp_path / "x")


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_out_as_they_went_in(tmp_path, array, save):
  np.save(tmp_path / "x.npy", array)
  save(tmp_path / "x.npz", a=array)
  for found in (
    untrusted.read_npy(tmp_path / "x.npy"),
    untrusted.read_npz(tmp_path / "x.npz")["a"],
  ):
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.flags.writeable


def test_a_large_array_is_read_in_pieces(tmp_path, monkeypatch):
  monkeypatch.setattr(untrusted, "_CHUNK", 7)
  array = np.arange(100, dtype=np.int16)
  np.savez_compressed(tmp_path / "x.npz", a=array)
  np.testing.assert_array_equal(untrusted.read_npz(tmp_path / "x.npz")["a"], array)


def test_an_array_as_python_2_wrote_it_is_read_without_a_warning(tmp_path):
  path = tmp_path / "x.npy"
  header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (3L,), }"
  path.write_bytes(npy(header, b"abc"))
  assert untrusted.read_npy(path).tolist() == [97, 98, 99]


@pytest.mark.parametrize(
  "content",
  [
    npy(described((2**40,))),
    npy(described((-1,)), b"a"),
    npy(described((1,) * 80), b"a"),
    npy(described((1,), "|O"), b"\x80\2K\1."),
    npy(described((0,), "<U99999999999")),
    npy(b"-" * 9000 + b"1"),
    npy(b"'\\d'"),
    npy(described((1,)), b"a", version=b"\7\0"),
    b"\x93NUMPY\2\0\xff\xff\xff\xff",
    b"",
  ],
)
def test_a_bad_array_is_one_line(tmp_path, content):
  path = tmp_path / "x.npy"
  path.write_bytes(content)
  for read in (untrusted.read_npy, untrusted.map_npy):
    with pytest.raises(errors.DataError) as info:
      read(path)
    assert str(info.value).isprintable()


def test_a_line_is_short_and_printable():
  assert untrusted.one_line("a\nb\x1b[31m\udcff\n") == "a b?[31m?"
  assert len(untrusted.one_line("x" * 1000)) == 120
  assert untrusted.one_line(io.StringIO) == "<class '_io.StringIO'>"


@pytest.mark.parametrize(
  "text", ['{"a": 1, "a": 2}', '{"x": {"a": 1, "b": 0, "a": 1}}', '{"a": NaN}',
           '{"a": -Infinity}', '{"a": [Infinity]}']
)  # fmt: skip
def test_json_that_two_readers_may_read_in_two_ways_is_refused(text):
  with pytest.raises(errors.DataError, match="is not JSON"):
    untrusted.parse_json(text.encode(), "file")
