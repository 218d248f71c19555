"""Adapters on several cores: the same results, in order, one after another if alone."""

import dataclasses
import functools
import re
import threading

from conftest import CONFIG, encodings, ids, labels
import jax
import jax.numpy as jnp
import pytest

import legonet_jax as lego
from legonet_jax import functional
from legonet_jax.host import train
from legonet_jax.runtime import compile_cache, parallel


@pytest.mark.parametrize("number", [1, 2, 5])
def test_results_come_in_order_whatever_the_number_of_threads(monkeypatch, number):
  monkeypatch.setattr(parallel, "count", lambda: number)
  slow = threading.Event()

  def work(i):
    if i == 0:
      slow.wait(0.05)  # the first is the last to be done
    return i * i

  assert list(parallel.each(work, iter(range(20)))) == [i * i for i in range(20)]
  assert list(parallel.each(work, [])) == []


@pytest.mark.parametrize("number", [1, 3])
def test_few_items_are_taken_ahead(monkeypatch, number):
  monkeypatch.setattr(parallel, "count", lambda: number)
  taken = []

  def items():
    for i in range(100):
      taken.append(i)
      yield i

  results = parallel.each(lambda i: i, items())
  next(results)
  assert len(taken) <= number + 2
  results.close()  # as when the caller is interrupted
  assert len(taken) <= number + 2


def test_an_error_in_a_worker_is_the_callers(monkeypatch):
  monkeypatch.setattr(parallel, "count", lambda: 2)

  def work(i):
    if i == 3:
      raise ValueError("three")
    return i

  with pytest.raises(ValueError, match="three"):
    list(parallel.each(work, range(10)))


def test_workers_compute_in_the_pinned_arithmetic(monkeypatch):
  monkeypatch.setattr(parallel, "count", lambda: 2)
  with jax.enable_x64(True):
    kinds = set(parallel.each(lambda i: jnp.arange(3.0).dtype.name, range(6)))
  assert kinds == {"float32"}


@pytest.mark.parametrize("solver", [lego.Ridge(), CONFIG.solver], ids=["ridge", "sgd"])
def test_the_number_of_workers_changes_no_bit(monkeypatch, solver):
  cfg = lego.LegoConfig(3, num_adapters=8, top_k=2, solver=solver)
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  found = set()
  for number in (1, 2, 3):
    monkeypatch.setattr(parallel, "count", lambda number=number: number)
    state, _ = lego.fit(cfg, samples)
    found.add(lego.digest(lego.unlearn(state, samples, state.ids[[0, 9]])[0]))
  assert len(found) == 1


def test_commands_keep_executables_in_the_cache_folder(monkeypatch, tmp_path):
  before = jax.config.jax_compilation_cache_dir
  try:
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("LEGONET_CACHE", str(tmp_path))
    compile_cache.use_compile_cache()
    folder = jax.config.jax_compilation_cache_dir
    assert folder.startswith(str(tmp_path / "xla"))
    jax.jit(lambda x: x * 3 + 1)(jnp.arange(7)).block_until_ready()
    chosen = str(tmp_path / "mine")
    jax.config.update("jax_compilation_cache_dir", chosen)
    compile_cache.use_compile_cache()
    assert jax.config.jax_compilation_cache_dir == chosen  # the user's is left alone
  finally:
    jax.config.update("jax_compilation_cache_dir", before)


def test_an_accelerator_trains_no_more_lanes_than_there_are_adapters(monkeypatch):
  """A million lanes took 7.5 GB for a few samples."""
  many = dataclasses.replace(CONFIG.solver, lanes=10_007)
  cfg = dataclasses.replace(CONFIG, solver=many)
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  group, widths = train._train_group, []

  def watch(cfg, few, work, jobs, held, mendable):
    widths.append((len(jobs), len(held)))
    return group(cfg, few, work, jobs, held, mendable)

  monkeypatch.setattr(train, "_train_group", watch)
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  lego.fit(cfg, samples)
  n = cfg.num_adapters
  assert widths == [(n, n)]


@pytest.mark.parametrize("lanes", [None, 10_007])
def test_a_program_has_no_more_lanes_than_there_are_adapters(lanes):
  many = dataclasses.replace(CONFIG.solver, lanes=10_007)
  cfg = dataclasses.replace(CONFIG, solver=many)
  samples = lego.make_samples(cfg, encodings(), labels(), ids())
  data = functional.make_data(samples, len(samples.ids))
  update = functools.partial(functional.update, lanes=lanes)
  mask = jnp.ones(len(data.labels), bool)
  program = str(jax.make_jaxpr(update)(data, functional.init(cfg, data), mask))
  assert not re.search(r"\[10007[\],]", program)
