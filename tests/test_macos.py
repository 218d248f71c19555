"""What Linux has and macOS has not: no function of the library needs it."""

import os
import pathlib
import platform
import subprocess

from conftest import CONFIG, encodings, ids, labels
import numpy as np
import pytest

from benchmarks import startup
import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.runtime import environment, machine, parallel

# Names of `os` that are documented as missing on macOS.
LINUX_ONLY = (
  "sched_getaffinity", "sched_setaffinity", "posix_fallocate", "posix_fadvise",
  "fdatasync", "listxattr", "getxattr", "setxattr", "removexattr", "memfd_create",
  "copy_file_range", "splice", "pidfd_open", "eventfd", "getrandom", "O_DIRECT",
  "O_TMPFILE", "O_PATH", "O_NOATIME", "O_LARGEFILE",
)  # fmt: skip


@pytest.fixture
def macos(monkeypatch):
  """A world without those names, without /proc, and with a `sysctl`."""
  for name in LINUX_ONLY:
    monkeypatch.delattr(os, name, raising=False)
  real = pathlib.Path.read_text

  def read_text(path, *args, **kwargs):
    if str(path).startswith("/proc"):
      raise FileNotFoundError(2, "No such file or directory", str(path))
    return real(path, *args, **kwargs)

  monkeypatch.setattr(pathlib.Path, "read_text", read_text)
  exists = pathlib.Path.exists

  def has(path, **kwargs):
    return not str(path).startswith("/proc") and exists(path, **kwargs)

  monkeypatch.setattr(pathlib.Path, "exists", has)
  monkeypatch.setattr(platform, "system", lambda: "Darwin")
  monkeypatch.setattr(platform, "processor", lambda: "arm")
  return monkeypatch


def tell(text):
  def run(command, **_):
    assert command == ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    return subprocess.CompletedProcess(command, 0, text, "")

  return run


def test_workers_are_the_cores_of_the_machine(macos):
  macos.setattr(os, "cpu_count", lambda: 7)
  assert parallel.count() == 7
  macos.setattr(os, "cpu_count", lambda: None)
  assert parallel.count() == 1


def test_workers_are_the_cores_of_the_process_where_it_can_be_told(monkeypatch):
  monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 5, 6}, raising=False)
  assert parallel.count() == 3


def test_the_processor_is_told_from_others_of_its_kind(macos):
  macos.setattr(subprocess, "run", tell("Apple M3 Pro\n"))
  assert machine.processor_name() == "Apple M3 Pro"
  assert environment.environment()["processor"] == "Apple M3 Pro"
  macos.setattr(subprocess, "run", tell(""))
  assert machine.processor_name() == "arm"


def test_a_machine_without_sysctl_or_proc_has_a_processor_too(macos):
  def missing(*_, **__):
    raise FileNotFoundError(2, "No such file or directory", "/usr/sbin/sysctl")

  macos.setattr(subprocess, "run", missing)
  assert machine.processor_name() == "arm"
  macos.setattr(platform, "system", lambda: "FreeBSD")
  assert machine.processor_name() == "arm"


def test_memory_is_known_or_said_to_be_unknown(macos):
  pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
  assert machine.memory_bytes() == pages * size

  def unknown(name):
    raise ValueError("unrecognized configuration name")

  macos.setattr(os, "sysconf", unknown)
  assert machine.memory_bytes() is None
  macos.setattr(os, "sysconf", lambda name: -1 if name == "SC_PHYS_PAGES" else 4096)
  assert machine.memory_bytes() is None
  macos.delattr(os, "sysconf")
  assert machine.memory_bytes() is None


def test_a_fit_that_is_larger_than_the_machine_is_refused(macos):
  macos.setattr(os, "sysconf", lambda name: 1024)  # pages of 1 KB: a megabyte
  cfg = lego.LegoConfig(2**20, num_adapters=50, top_k=1)
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  with pytest.raises(errors.ConfigError, match="this machine has"):
    lego.fit(cfg, samples)


def test_a_fit_and_a_request_give_the_bits_that_they_give_on_linux(macos, state):
  samples = lego.make_samples(CONFIG, encodings(), labels(), ids())
  fitted, _ = lego.fit(CONFIG, samples)
  assert lego.digest(fitted) == lego.digest(state)
  wanted = fitted.ids[:2]
  after, _ = lego.unlearn(fitted, samples, wanted)
  rest = np.setdiff1d(samples.ids, wanted)
  again, _ = lego.fit(CONFIG, lego.select(samples, rest))
  assert lego.digest(after) == lego.digest(again)


def test_benchmarks_measure_memory_without_proc(macos):
  def run(command, **_):
    assert command == ["ps", "-o", "rss=", "-p", str(os.getpid())]
    return subprocess.CompletedProcess(command, 0, " 20480\n", "")

  macos.setattr(subprocess, "run", run)
  assert startup._memory_mb() == 20
  assert startup._memory_mb(peak=True) > 0
