"""Counts against hand sums, against jaxprs of the real code, and against draws."""

import functools
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.reproduce import cost_tables, paper, tables
import legonet_jax as lego
from legonet_jax import errors
from legonet_jax.core import adapters
from legonet_jax.core.config import for_prediction
from legonet_jax.encoder import resnet
from legonet_jax.encoder.conv import forms
from legonet_jax.encoder.counting import count_encoder
from legonet_jax.measures import cost

DOC = pathlib.Path(__file__).parent.parent / "docs" / "cost.md"
KNOWN = {"resnet18": 11_176_512, "resnet34": 21_284_672, "resnet50": 23_508_032}


def _by_hand(name, image_size):
  """(parameters, statistics, MACs) from the architecture's table, layer by layer."""
  stages = {"resnet18": (2, 2, 2, 2)}.get(name, (3, 4, 6, 3))
  parameters = statistics = macs = 0

  def layer(k, i, o, side):
    nonlocal parameters, statistics, macs
    parameters += k * k * i * o + 2 * o
    statistics += 2 * o
    macs += side * side * k * k * i * o

  side = math.ceil(image_size / 2)
  layer(7, 3, 64, side)
  side, inputs = math.ceil(side / 2), 64
  for stage, width in enumerate((64, 128, 256, 512)):
    for block in range(stages[stage]):
      before, out = side, 4 * width if name == "resnet50" else width
      if stage > 0 and block == 0:
        side = math.ceil(side / 2)
      if name == "resnet50":
        layer(1, inputs, width, before)
        layer(3, width, width, side)
        layer(1, width, out, side)
      else:
        layer(3, inputs, width, side)
        layer(3, width, width, side)
      if block == 0 and inputs != out:
        layer(1, inputs, out, side)
      inputs = out
  return parameters, statistics, macs


def _macs_in(jaxpr):
  """MACs of all convolutions and matrix products of a jaxpr, nested ones included.

  Of several forms of a step, one for each platform, the last one counts.
  """
  total = 0
  for eqn in jaxpr.eqns:
    if eqn.primitive.name == "conv_general_dilated":
      kernel, out = eqn.invars[1].aval.shape, eqn.outvars[0].aval.size
      features = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
      # The gradient of a strided input spreads it out with zeros, which are no work.
      zeros = math.prod(eqn.params["lhs_dilation"])
      total += out * math.prod(kernel) // features // zeros
    elif eqn.primitive.name == "dot_general":
      axes = eqn.params["dimension_numbers"][0][0]
      summed = math.prod(eqn.invars[0].aval.shape[a] for a in axes)
      total += eqn.outvars[0].aval.size * summed
    times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
    for name, value in eqn.params.items():
      forms_ = value if isinstance(value, (tuple, list)) else (value,)
      for inner in forms_[-1:] if name == "branches" else forms_:
        inner = getattr(inner, "jaxpr", inner)
        total += times * _macs_in(inner) if hasattr(inner, "eqns") else 0
  return total


def _trace(f, *args):
  return _macs_in(jax.make_jaxpr(f)(*args).jaxpr)


@pytest.mark.parametrize(
  ("name", "size"), [("resnet18", 64), ("resnet34", 224), ("resnet50", 75)]
)
def test_counts_of_the_real_network_equal_the_hand_sum(name, size):
  encoder = count_encoder(name, size)
  counted = encoder.parameters, encoder.statistics, encoder.macs
  assert counted == _by_hand(name, size)
  assert encoder.parameters == KNOWN[name]
  assert all(type(value) is int for value in counted)


def test_macs_of_training_equal_those_of_the_real_gradients_jaxpr(monkeypatch):
  net = resnet.ResNet((1, 1, 1, 1))
  monkeypatch.setitem(resnet.RESNETS, "resnet10", net)
  setting = cost.Setting(
    num_classes=10, num_samples=1, encoder="resnet10", image_size=64
  )
  one_epoch = cost.count_retraining(setting, cost.rnc()).macs
  forward = cost.count_model(setting, cost.rnc()).macs

  def plain(x, kernel, stride, padding, train):
    del train
    return forms.lax_conv(x, kernel, stride, padding)

  monkeypatch.setattr(resnet, "conv2d", plain)
  variables = jax.eval_shape(lambda: resnet.init(net, jax.random.key(0)))
  weights = {"net": variables["params"], "linear": jnp.zeros((512, 10))}
  image = jnp.zeros((1, 64, 64, 3))

  def loss(weights, stats):
    parts = {"params": weights["net"], "batch_stats": stats}
    e, _ = resnet.apply_train(net, parts, image)
    return jax.nn.logsumexp(e @ weights["linear"])

  assert _trace(loss, weights, variables["batch_stats"]) == forward
  assert _trace(jax.grad(loss), weights, variables["batch_stats"]) == one_epoch


def test_macs_of_an_adapters_step_equal_those_of_the_real_gradients_jaxpr():
  setting = cost.Setting(num_samples=1)
  labels = jnp.zeros(1, jnp.int32)
  cfg = lego.LegoConfig(num_classes=10)
  step = functools.partial(adapters.gradient, targets=adapters.targets(cfg, labels))
  macs = _trace(step, jnp.zeros((10, 512)), jnp.zeros((1, 512)))
  assert cost.count_retraining(setting, cost.fixsisa(1)).macs == macs
  assert cost.count_retraining(setting, cost.fixsisa(1), epochs=7).macs == 7 * macs


def test_macs_of_an_inference_equal_those_of_the_real_predictions_jaxpr():
  cfg = lego.LegoConfig(num_classes=10, num_adapters=300, top_k=10)
  model = lego.Model(
    for_prediction(cfg),
    keys=jnp.zeros((300, 512), jnp.int8),
    weights=jnp.zeros((300, 10, 512)),
    live=jnp.ones(300, bool),
  )
  counted = cost.count_model(cost.Setting(), cost.legonet(300, 10))
  encoder = count_encoder("resnet34", 224)
  macs = _trace(lego.predict, model, jnp.zeros(512))
  assert counted.macs - encoder.macs == macs
  assert counted.keys == model.keys.size
  assert counted.parameters - encoder.parameters == model.weights.size


def test_methods_differ_as_the_table_says():
  setting = cost.Setting(num_classes=100)
  e, d_c = count_encoder("resnet34", 224), 512 * 100
  count = functools.partial(cost.count_model, setting)
  assert count(cost.rnc()) == (e.parameters + d_c, e.statistics, 0, e.macs + d_c)
  assert count(cost.sisa(10)) == tuple(10 * v for v in count(cost.rnc()))
  assert count(cost.fixsisa(10)) == (
    e.parameters + 10 * d_c,
    e.statistics,
    0,
    e.macs + 10 * d_c,
  )
  assert count(cost.legonet(1000, 20)) == (
    e.parameters + 1000 * d_c,
    e.statistics,
    1000 * 512,
    e.macs + 1000 * 512 + 20 * d_c,
  )
  assert count(cost.sisa(np.int32(1000))).parameters == 1000 * (e.parameters + d_c)


def test_one_sample_costs_what_the_paper_says():
  setting = cost.Setting()
  lego_100 = cost.count_retraining(setting, cost.legonet(100, 10))
  assert lego_100[:3] == (10, 51_200, 50_000)
  assert cost.count_retraining(setting, cost.legonet(1000, 10)).samples == 5_000
  assert cost.count_retraining(setting, cost.sisa(10))[:3] == (1, 21_289_792, 5_000)
  assert cost.count_retraining(setting, cost.rnc(), request=9)[:3] == (
    1,
    21_289_792,
    50_000,
  )


@pytest.mark.parametrize("request_size", [1, 4])
@pytest.mark.parametrize(
  "method", [cost.sisa(7), cost.fixsisa(3), cost.legonet(12, 3), cost.legonet(5, 5)]
)
def test_expected_work_is_the_mean_of_random_requests(method, request_size):
  remaining, draws = 60, 2000
  rng = np.random.default_rng(0)
  # Each sample is in `copies` sub-models, any of them alike.
  order = rng.random((draws, request_size + remaining, method.parts)).argsort(axis=2)
  member = order < method.copies
  hit = member[:, :request_size].any(axis=1)
  left = member[:, request_size:].sum(axis=1)
  drawn = np.stack([hit.sum(axis=1), (hit * left).sum(axis=1)])
  setting = cost.Setting(num_samples=remaining, image_size=64, encoder="resnet18")
  work = cost.count_retraining(setting, method, request_size)
  error = drawn.std(axis=1) / math.sqrt(draws)
  assert np.all(
    np.abs(drawn.mean(axis=1) - [work.models, work.samples]) <= 4 * error + 1e-9
  )
  linear = 512 * 10
  each = linear + (KNOWN["resnet18"] if method.own_encoder else 0)
  assert work.parameters == pytest.approx(work.models * each)


def test_hubs_cost_what_the_mean_over_all_samples_costs():
  rng = np.random.default_rng(1)
  n, k, samples = 20, 3, 400
  popular = rng.gumbel(size=(samples, n)) + np.linspace(0, 4, n)
  routes = popular.argsort(axis=1)[:, -k:]
  sizes = np.bincount(routes.ravel(), minlength=n)
  factor = (sizes**2).sum() / (k**2 * samples**2 / n)
  setting = cost.Setting(num_samples=samples, image_size=64, encoder="resnet18")
  work = cost.count_retraining(setting, cost.legonet(n, k, factor))
  assert factor > 1.3
  assert work.samples == pytest.approx(sizes[routes].sum(axis=1).mean())
  # However many are forgotten at once, it is no more than a fit.
  many = cost.count_retraining(setting, cost.legonet(n, k, factor), request=100)
  assert many.samples == k * samples


@pytest.mark.parametrize(
  ("make", "word"),
  [
    (lambda: cost.Setting(num_classes=1), "num_classes"),
    (lambda: cost.Setting(num_samples=0), "num_samples"),
    (lambda: cost.Setting(image_size=0), "image_size"),
    (lambda: cost.Setting(image_size=22.5), "image_size"),
    (lambda: cost.Setting(encoder="resnet35"), "resnet35"),
    (lambda: count_encoder("resnet34", -1), "image_size"),
    (lambda: cost.sisa(0), "shards"),
    (lambda: cost.fixsisa(1.5), "shards"),
    (lambda: cost.legonet(0, 1), "num_adapters"),
    (lambda: cost.legonet(10, 0), "top_k"),
    (lambda: cost.legonet(10, 11), "top_k"),
    (lambda: cost.legonet(10, 5, 0.9), "imbalance"),
    (lambda: cost.legonet(10, 5, 2.1), "imbalance"),
    (lambda: cost.legonet(10, 5, math.nan), "imbalance"),
    (lambda: cost.count_retraining(cost.Setting(), cost.rnc(), 0), "request"),
    (lambda: cost.count_retraining(cost.Setting(), cost.rnc(), 1, 0), "epochs"),
  ],
)
def test_bad_input_is_named(make, word):
  with pytest.raises(errors.ConfigError, match=word):
    make()


def test_figure_5_swapped_back_is_ours_to_the_last_digit():
  parameters, macs = cost_tables.figure_5_parameters(), cost_tables.figure_5_macs()
  assert (len(parameters), len(macs)) == (8, 6)
  for row in parameters:
    assert row["ours"] == row["paper, swapped back"] != row["paper prints"]
  for row in macs:
    assert row["ours + BatchNorm and pooling"] == row["paper, swapped back"]
    assert row["ours"] < row["paper, swapped back"]
  # 3,738,112 numbers pass a BatchNorm; 512 means over 7 x 7.
  assert cost_tables.elementwise(cost_tables.FIGURE) == 4 * 3_738_112 + 50 * 512


def test_errata_are_computed():
  text = {row["paper says"]: row for row in cost_tables.errata()}
  samples = text["LegoNet can even achieve k²N/n < N/s"]["why"]
  assert "At n = 100: 50,000 > 5,000. At n = 1000: 5,000 = 5,000." in samples
  time = next(row for says, row in text.items() if "12.91" in says)
  assert time["it should be"] == "n = 1000 costs 12.91 %, n = 100 costs 32.65 %"
  assert paper.SHARE == {100: 32.65, 1000: 12.91}


def test_the_documents_tables_are_what_the_code_prints():
  doc = DOC.read_text()
  for rows in (
    cost_tables.figure_5_parameters(),
    cost_tables.figure_5_macs(),
    cost_tables.retraining(),
    cost_tables.retraining(100),
    cost_tables.errata(),
  ):
    printed = tables.markdown(tables.from_rows("", "", "", rows)).splitlines()[2:-2]
    assert "\n".join(printed) in doc
