"""The network against a float64 oracle in numpy (tests/test_parity.py has torch)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from test_conv import _oracle as convolve

from legonet_jax.encoder import resnet


def _relu(x):
  return np.maximum(x, 0)


def _forward(variables, images, stages, stats=None):
  """A basic ResNet in float64; with `stats` a dict, on the batch's own statistics."""
  params, running = variables["params"], variables["batch_stats"]

  def layer(x, path, stride=1):
    p, s = params, running
    for name in path:
      p, s = p[name], s[name]
    y = convolve(x, p["kernel"], stride, p["kernel"].shape[0] // 2)
    mean, var = s["mean"].astype(np.float64), s["var"].astype(np.float64)
    if stats is not None:
      mean, var = y.mean(axis=(0, 1, 2)), y.var(axis=(0, 1, 2))
      n = y.size // y.shape[-1]
      stats[path] = (
        0.9 * s["mean"] + 0.1 * mean,
        0.9 * s["var"] + 0.1 * var * n / (n - 1),
      )
    return p["scale"] * (y - mean) / np.sqrt(var + 1e-5) + p["bias"]

  x = _relu(layer(images, ("conv1",), 2))
  size = x.shape[1] // 2
  padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))  # x is at least 0
  windows = [
    padded[:, i : i + 2 * size : 2, j : j + 2 * size : 2]
    for i in range(3)
    for j in range(3)
  ]
  x = np.max(windows, axis=0)
  for s, count in enumerate(stages):
    for b in range(count):
      name = f"layer{s + 1}_{b}"
      stride = 2 if s and not b else 1
      y = _relu(layer(x, (name, "conv1"), stride))
      y = layer(y, (name, "conv2"))
      short = layer(x, (name, "downsample"), stride) if stride == 2 else x
      x = _relu(y + short)
  return x.mean(axis=(1, 2))


@functools.cache
def _case():
  """A ResNet-10: every kind of layer that ResNet-18 has, compiled in half the time."""
  net, rng = resnet.ResNet((1, 1, 1, 1)), np.random.default_rng(1)

  def draw(leaf):
    value = rng.standard_normal(leaf.shape).astype(np.float32)
    scale = np.float32(np.sqrt(np.prod(leaf.shape[:3])))
    return value / scale if value.ndim == 4 else np.abs(value) / 2 + np.float32(0.5)

  shapes = jax.eval_shape(lambda: resnet.init(net, jax.random.key(0)))
  variables = jax.tree.map(draw, shapes)
  # Large and many enough for the variance of the last map's pixels to mean something.
  images = rng.standard_normal((4, 64, 64, 3)).astype(np.float32)
  return net, variables, images


def _error(ours, oracle):
  return np.linalg.norm(np.asarray(ours) - oracle) / np.linalg.norm(oracle)


def test_inference_plain_and_folded_equals_the_oracle():
  net, variables, images = _case()
  oracle = _forward(variables, images, net.stages)
  plain = jax.jit(resnet.apply, static_argnums=0)(net, variables, images)
  folded = jax.jit(resnet.apply_folded, static_argnums=0)(
    net, jax.jit(resnet.fold)(variables), images
  )
  assert plain.shape == (4, net.dim)
  assert _error(plain, oracle) < 1e-5
  assert _error(folded, oracle) < 1e-5
  prepared = jax.jit(lambda v: resnet.transform(net, resnet.fold(v), 64))(variables)
  assert "winograd" in prepared["params"]["layer4_0"]["conv2"]
  fast = jax.jit(resnet.apply_folded, static_argnums=0)(net, prepared, images)
  assert _error(fast, oracle) < 1e-5


def test_training_mode_equals_the_oracle_and_moves_the_running_statistics():
  net, variables, images = _case()
  stats = {}
  oracle = _forward(variables, images, net.stages, stats)
  features, updated = jax.jit(resnet.apply_train, static_argnums=0)(
    net, variables, images
  )
  assert _error(features, oracle) < 1e-4
  for path in [("conv1",), ("layer1_0", "conv2"), ("layer3_0", "downsample")]:
    node = updated
    for name in path:
      node = node[name]
    assert _error(node["mean"], stats[path][0]) < 1e-4
    assert _error(node["var"], stats[path][1]) < 1e-4


def test_tuning_mode_has_the_features_and_the_gradients_of_inference():
  net, variables, images = _case()

  def value_and_grads(apply):
    def loss(params):
      e = apply(net, {**variables, "params": params}, images)
      return jnp.sum(jnp.square(e)), e

    (_, e), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(variables["params"])
    return e, grads

  e, grads = value_and_grads(resnet.apply_tune)
  oracle, slow = value_and_grads(resnet.apply)
  assert _error(e, oracle) < 1e-5
  errors = jax.tree.map(lambda ours, theirs: _error(ours, theirs), grads, slow)
  assert max(jax.tree.leaves(errors)) < 1e-4


def test_init_is_torchvisions_and_depends_on_the_key_alone():
  net = resnet.ResNet((1,))
  make = jax.jit(lambda key: resnet.init(net, key))
  a, b = make(jax.random.key(0)), make(jax.random.key(0))
  assert jax.tree.all(jax.tree.map(lambda x, y: bool(jnp.all(x == y)), a, b))
  kernel = a["params"]["layer1_0"]["conv1"]["kernel"]
  assert abs(float(jnp.std(kernel)) / np.sqrt(2 / (9 * 64)) - 1) < 0.02  # fan out
  assert bool(jnp.all(a["params"]["conv1"]["scale"] == 1))
  assert bool(jnp.all(a["batch_stats"]["conv1"]["mean"] == 0))
