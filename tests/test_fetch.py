"""A download is whole and right, or it is not there."""

import hashlib
import http.server
import os
import resource
import threading

import pytest

from legonet_jax import errors
from legonet_jax.io import download

DATA = bytes(range(256)) * 4096


class _Handler(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    asked = self.headers.get("Range")
    self.server.ranges.append(asked)
    start = int(asked[6:-1]) if asked and self.server.resumable else 0
    if start >= len(DATA) and asked:
      self.send_response(416)
      self.send_header("Content-Range", f"bytes */{len(DATA)}")
      self.end_headers()
      return
    self.send_response(206 if start else 200)
    if self.server.length:
      length = len(DATA) - start if self.server.length is True else self.server.length
      self.send_header("Content-Length", str(length))
    self.end_headers()
    stop = self.server.breaks.pop(0) if self.server.breaks else len(DATA)
    self.wfile.write(DATA[start:stop])

  def log_message(self, *args):
    pass


@pytest.fixture
def server():
  httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
  httpd.ranges, httpd.breaks, httpd.resumable = [], [], True
  httpd.length = True
  thread = threading.Thread(target=httpd.serve_forever)
  thread.start()
  yield httpd
  httpd.shutdown()
  thread.join()
  httpd.server_close()


def _remote(server, data=DATA):
  url = f"http://127.0.0.1:{server.server_port}/file.pth"
  return download.Remote(url, hashlib.sha256(data).hexdigest())


def test_a_file_is_fetched_once(server, tmp_path):
  path = download.fetch(_remote(server), tmp_path / "new", progress=False)
  assert path.read_bytes() == DATA
  assert download.fetch(_remote(server), tmp_path / "new", progress=False) == path
  assert server.ranges == [None]


def test_a_broken_connection_is_resumed_where_it_broke(server, tmp_path):
  server.breaks = [300_000, 700_000]
  path = download.fetch(_remote(server), tmp_path, progress=False)
  assert path.read_bytes() == DATA
  assert server.ranges == [None, "bytes=300000-", "bytes=700000-"]


def test_what_arrived_is_kept_for_the_next_run(server, tmp_path):
  server.breaks = [500_000]
  with pytest.raises(errors.DownloadError, match="resume"):
    download.fetch(_remote(server), tmp_path, attempts=1, progress=False)
  assert os.listdir(tmp_path) == ["file.pth.part"]
  download.fetch(_remote(server), tmp_path, progress=False)
  assert server.ranges[-1] == "bytes=500000-"
  assert os.listdir(tmp_path) == ["file.pth"]


def test_a_server_without_ranges_sends_all_again(server, tmp_path):
  server.breaks, server.resumable = [500_000], False
  assert download.fetch(_remote(server), tmp_path, progress=False).read_bytes() == DATA


def test_a_complete_part_needs_no_more_bytes(server, tmp_path):
  (tmp_path / "file.pth.part").write_bytes(DATA)
  assert download.fetch(_remote(server), tmp_path, progress=False).read_bytes() == DATA


def test_a_part_that_is_too_long_is_fetched_again(server, tmp_path):
  (tmp_path / "file.pth.part").write_bytes(DATA + b"x")
  assert download.fetch(_remote(server), tmp_path, progress=False).read_bytes() == DATA


def test_a_wrong_checksum_leaves_nothing(server, tmp_path):
  with pytest.raises(errors.DownloadError, match="sha256"):
    download.fetch(_remote(server, b"other"), tmp_path, progress=False)
  assert os.listdir(tmp_path) == []


def test_a_damaged_cached_file_is_not_used(server, tmp_path):
  (tmp_path / "file.pth").write_bytes(DATA[:-1])
  with pytest.raises(errors.DownloadError, match="delete it"):
    download.fetch(_remote(server), tmp_path, progress=False)


def test_offline_says_where_to_put_the_file(tmp_path):
  remote = download.Remote("http://127.0.0.1:9/file.pth", "0" * 64)
  with pytest.raises(errors.DownloadError, match=str(tmp_path / "file.pth")):
    download.fetch(remote, tmp_path, progress=False)


def test_a_full_disk_is_an_oserror_not_a_network_problem(server, tmp_path):
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, before[1]))
  try:
    with pytest.raises(OSError, match="File too large"):
      download.fetch(_remote(server), tmp_path, progress=False)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
  assert server.ranges == [None]


def test_bytes_never_go_through_a_link_in_the_cache(server, tmp_path):
  target = tmp_path / "target"
  target.write_bytes(b"mine")
  (tmp_path / "file.pth.part").symlink_to(target)
  with pytest.raises(errors.DownloadError, match="not a regular file"):
    download.fetch(_remote(server), tmp_path, progress=False)
  assert target.read_bytes() == b"mine"


def test_a_fifo_in_the_cache_is_refused_and_not_waited_for(server, tmp_path):
  os.mkfifo(tmp_path / "file.pth.part")
  with pytest.raises(errors.DownloadError, match="not a regular file"):
    download.fetch(_remote(server), tmp_path, progress=False)
  os.mkfifo(tmp_path / "file.pth")
  with pytest.raises(errors.DownloadError, match="delete it"):
    download.fetch(_remote(server), tmp_path, progress=False)


@pytest.mark.parametrize("said", [True, False])
def test_a_server_cannot_fill_the_disk(server, tmp_path, monkeypatch, said):
  monkeypatch.setattr(download, "MAX_BYTES", 100_000, raising=False)
  server.length = said
  with pytest.raises(errors.DownloadError, match="more than 100,000 bytes"):
    download.fetch(_remote(server), tmp_path, progress=False)
  assert os.listdir(tmp_path) == []


def test_a_length_that_is_no_number_is_ignored(server, tmp_path):
  server.length = "many"
  assert download.fetch(_remote(server), tmp_path, progress=False).read_bytes() == DATA


def test_a_part_that_grew_beyond_all_bounds_is_begun_again(
  server, tmp_path, monkeypatch
):
  monkeypatch.setattr(download, "MAX_BYTES", len(DATA), raising=False)
  with (tmp_path / "file.pth.part").open("wb") as file:
    file.truncate(len(DATA) + 1)
  assert download.fetch(_remote(server), tmp_path, progress=False).read_bytes() == DATA
  assert server.ranges == [None]


def test_the_cache_folder_can_be_chosen(monkeypatch, tmp_path):
  monkeypatch.setenv("LEGONET_CACHE", str(tmp_path))
  assert download.cache_dir() == tmp_path
  monkeypatch.delenv("LEGONET_CACHE")
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  assert download.cache_dir() == tmp_path / "legonet-jax"
