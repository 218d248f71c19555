"""Run by test_functional_sharding with 8 devices: prints the meshes that passed.

export XLA_FLAGS=--xla_force_host_platform_device_count=8
cd tests && PYTHONPATH=.. python sharding_world.py ridge {Auto,Explicit}:{1,2,4,8}
"""

import functools
import sys

from conftest import encodings
from functional_world import assert_same, make, mask_of
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import numpy as np

import legonet_jax as lego
from legonet_jax import functional

AXIS = "adapters"


def put(mesh, tree, specs):
  shardings = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs)
  return jax.device_put(tree, shardings)


def check_training(mesh, data, empty, calls):
  """By function, each of its calls: (state before, argument, wanted)."""
  specs = functional.specs(empty, AXIS)
  for call, cases in calls.items():
    sharded = jax.jit(
      jax.shard_map(
        functools.partial(call, axis_name=AXIS),
        mesh=mesh,
        in_specs=(P(), specs, P()),
        out_specs=(specs, P()),
        check_vma=False,
      )
    )
    program = None
    for before, argument, wanted in cases:
      args = put(mesh, data, P()), put(mesh, before, specs), put(mesh, argument, P())
      program = program or sharded.lower(*args).compile()
      found = program(*args)
      assert_same(found, wanted)
      shards = found[0].weights.addressable_shards
      assert len(shards) == mesh.size
      assert shards[0].data.shape[0] == len(found[0].anchors) // mesh.size
    text = program.as_text()
    for word in ("all-gather", "all-to-all", "collective-permute"):
      assert word not in text, word  # a status is summed; nothing else moves


def check_predictions(mesh, state):
  """Rows split over a mesh, a state split over it, and both."""
  e = encodings(16, seed=3)
  p, classes = functional.predict(state, e), functional.classify(state, e)
  z, share = functional.logits(state, e)
  split = put(mesh, state, functional.specs(state, AXIS))
  whole = put(mesh, state, P())
  for held in (split, whole):
    for spec in (P(AXIS), P()):
      rows = put(mesh, jnp.asarray(e), spec)
      for predict in (functional.predict, jax.jit(lego.predict), lego.predict):
        model = held if predict is functional.predict else held.model
        np.testing.assert_allclose(predict(model, rows), p, atol=1e-6)
      np.testing.assert_array_equal(functional.classify(held, rows), classes)
      found = functional.logits(held, rows)
      np.testing.assert_allclose(found[0], z, atol=1e-4)
      np.testing.assert_array_equal(found[1], share)


def main():
  cfg, _, data, empty = make(sys.argv[1])
  del cfg
  all_, some = mask_of(data, np.arange(60)), mask_of(data, np.arange(7, 55))
  first = functional.update(data, empty, all_)
  second = functional.update(data, first[0], some)
  gone, back = jnp.asarray([3, 60], jnp.int32), jnp.asarray([1], jnp.int32)
  calls = {
    functional.update: [(empty, all_, first), (first[0], some, second)],
    functional.forget: [(first[0], gone, functional.forget(data, first[0], gone))],
    functional.learn: [(second[0], back, functional.learn(data, second[0], back))],
  }
  for wanted in sys.argv[2:]:
    kind, count = wanted.split(":")
    axes = (getattr(AxisType, kind),)
    mesh = jax.make_mesh((int(count),), (AXIS,), axis_types=axes)
    check_training(mesh, data, empty, calls)
    check_predictions(mesh, first[0])
    print(wanted)


if __name__ == "__main__":
  main()
