"""U-LiRA, its curve, and MIA efficacy against slow oracles."""

import itertools
import math
import statistics
import sys

from hypothesis import given, strategies as st
from measures_world import FAST, normal
import numpy as np
import pytest

from legonet_jax import errors, measures
from legonet_jax.measures import Accuracies, roc

SCORES = st.lists(st.integers(0, 4), min_size=1, max_size=3)


def slow_auc(positive, negative):
  pairs = list(itertools.product(positive, negative))
  return sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs) / len(pairs)


def slow_tpr(positive, negative, fpr):
  """The mean over all ways to break ties."""
  scores = [(s, "p") for s in positive] + [(s, "n") for s in negative]
  heights = []
  for order in itertools.permutations(scores):
    kinds = "".join(k for _, k in sorted(order, key=lambda item: -item[0]))
    above = [part.count("p") for part in itertools.accumulate(kinds.split("n"))]
    t = [0.0, *above[:-1], float(len(positive))]
    at = fpr * (len(negative) + 1)
    i = min(int(at), len(negative))
    heights.append(t[i] + (at - i) * (t[i + 1] - t[i]))
  return statistics.fmean(heights) / len(positive)


def curve(positive, negative, fpr=0.3, counts=None):
  ranks = roc.rank(np.asarray(positive, float), np.asarray(negative, float))
  return roc.measure(
    ranks, np.ones(len(positive), int) if counts is None else counts, fpr
  )


@FAST
@given(SCORES, st.data(), st.floats(0.01, 0.99))
def test_auc_counts_all_pairs_and_tpr_all_ways_to_break_ties(positive, data, fpr):
  size = len(positive)
  negative = data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
  point = curve(positive, negative, fpr)
  assert point.auc == pytest.approx(slow_auc(positive, negative))
  assert point.tpr == pytest.approx(slow_tpr(positive, negative, fpr))


@FAST
@given(st.lists(st.integers(0, 6), min_size=8, max_size=8), st.floats(0.01, 0.99))
def test_over_all_labellings_of_the_same_scores_the_curve_is_at_chance(scores, fpr):
  points = []
  for chosen in itertools.combinations(range(8), 4):
    positive = [scores[i] for i in chosen]
    negative = [scores[i] for i in range(8) if i not in chosen]
    points.append(curve(positive, negative, fpr))
  np.testing.assert_allclose(np.mean(points, axis=0), [0.5, fpr])


def test_a_score_that_counts_twice_is_as_two_scores():
  positive, negative, counts = normal(5), normal(5, seed=1), np.array([2, 0, 1, 1, 3])
  want = curve(np.repeat(positive, counts), np.repeat(negative, counts))
  np.testing.assert_allclose(curve(positive, negative, counts=counts), want)


def slow_ratios(unlearned, never, fit, held):
  spread = [
    [statistics.variance(m[i, s] for i in fit) for s in range(m.shape[1])]
    for m in (unlearned, never)
  ]
  kinds = []
  for scored in (unlearned, never):
    ratios = []
    for i, s in itertools.product(held, range(unlearned.shape[1])):
      logs = []
      for fitted, variances in zip((unlearned, never), spread, strict=True):
        mean = statistics.fmean(fitted[j, s] for j in fit)
        var = max(variances[s], 0.01 * statistics.fmean(variances), 1e-12)
        logs.append(math.log(statistics.NormalDist(mean, var**0.5).pdf(scored[i, s])))
      ratios.append(logs[0] - logs[1])
    kinds.append(ratios)
  return kinds


@pytest.mark.parametrize("models", [4, 7])
def test_ulira_scores_each_half_with_gaussians_of_the_other(models):
  a, b = normal(models, 40) + 0.7, normal(models, 40, seed=1)
  a[:, 3] *= 1e-4  # so that the variance floor is at work
  half = models // 2
  first, second = range(half), range(half, models)
  points = [
    curve(*slow_ratios(a, b, fit, held), 0.05)
    for fit, held in ((first, second), (second, first))
  ]
  got = measures.ulira(a, b, fpr=0.05, resamples=1)
  want = np.mean(points, axis=0)
  np.testing.assert_allclose([got.auc, got.tpr], want, atol=1e-9)
  assert got.fpr == 0.05


def test_ulira_of_equal_models_is_exactly_chance():
  a = normal(16, 100)
  got = measures.ulira(a, a, resamples=20)
  assert got == (0.5, 0.5, 0.5, 0.01, 0.01, 0.01, 0.01)


def test_ulira_of_far_apart_models_is_one():
  got = measures.ulira(normal(8, 30) + 30, normal(8, 30, seed=1), resamples=50)
  assert got[:6] == (1,) * 6


def test_ulira_of_one_distribution_covers_chance_even_if_models_err_on_all_alike():
  # An interval over examples alone covers 0.5 in fewer than half of these.
  rng, trials, covered = np.random.default_rng(0), 20, np.zeros(2)
  centre = 3 * rng.normal(size=(1, 200))

  def models():
    return centre + rng.normal(size=(12, 200)) + rng.normal(size=(12, 1))

  for seed in range(trials):
    got = measures.ulira(models(), models(), seed=seed, resamples=60)
    covered += got.auc_low <= 0.5 <= got.auc_high, got.tpr_low <= 0.01 <= got.tpr_high
  assert (covered >= 0.9 * trials).all()


def test_ulira_has_no_leak_that_many_examples_would_show():
  # Gaussians fitted on the models that they score would give about 0.9 here.
  got = measures.ulira(normal(4, 3000), normal(4, 3000, seed=1), resamples=20)
  assert got.auc == pytest.approx(0.5, abs=0.02)
  assert got.tpr == pytest.approx(0.01, abs=0.005)


def test_ulira_intervals_follow_the_seed_and_the_estimate_does_not():
  a, b = normal(6, 20) + 1, normal(6, 20, seed=1)
  one, same, two = (measures.ulira(a, b, seed=s, resamples=40) for s in (0, 0, 1))
  assert one == same
  assert (one.auc, one.tpr) == (two.auc, two.tpr)
  assert one.auc_low != two.auc_low
  assert one.auc_low < one.auc < one.auc_high


def two_classes(true_label):
  """Probabilities [B, 2] with the given ones on label 0."""
  p = np.asarray(true_label)
  return np.stack([p, 1 - p], axis=1), np.zeros(len(p), int)


def mia(retain, test, unlearn, seed=0, **kwargs):
  sides = [side for p in (retain, test, unlearn) for side in two_classes(p)]
  return measures.mia_efficacy(*sides, seed, **kwargs)


def uniform(low, high, count, seed=0):
  return np.random.default_rng(seed).uniform(low, high, count)


def test_mia_is_that_of_an_svc_on_a_kernel_written_out():
  svm = pytest.importorskip("sklearn.svm")
  retain, test, unlearn = (uniform(lo, 1, 40, i) for i, lo in enumerate((0.4, 0, 0.2)))
  fitted = [*retain, *test]

  def kernel(rows):
    return [[math.exp(-((a - b) ** 2)) for b in fitted] for a in rows]

  attack = svm.SVC(kernel="precomputed", C=3.0)
  attack.fit(kernel(fitted), [1] * 40 + [0] * 40)
  want = 100 * sum(1 for called in attack.predict(kernel(unlearn)) if not called) / 40
  assert 0 < want < 100
  assert mia(retain, test, unlearn) == pytest.approx(want)


def test_mia_finds_what_a_memorising_model_remembers_and_forgot():
  pytest.importorskip("sklearn")
  retain, test = uniform(0.98, 1, 300), uniform(0, 0.7, 200)
  assert mia(retain, test, uniform(0.98, 1, 50, 1)) == 0
  assert mia(retain, test, uniform(0, 0.7, 50, 1)) == 100


def test_mia_on_a_model_that_memorises_nothing_treats_all_samples_alike():
  pytest.importorskip("sklearn")
  retain, test = uniform(0, 1, 400), uniform(0, 1, 400, 1)
  called = mia(retain, test, test)
  assert called == pytest.approx(mia(retain, test, retain), abs=15)


def test_mia_fits_equally_many_of_each_side_drawn_by_the_seed_up_to_the_limit():
  pytest.importorskip("sklearn")
  retain, test, unlearn = uniform(0.3, 1, 300), uniform(0, 1, 90), uniform(0, 1, 200, 1)
  assert mia(retain, test, unlearn) == mia(retain, test, unlearn)
  assert len({mia(retain, test, unlearn, s) for s in range(6)}) > 1
  equal = retain[:90]
  assert len({mia(equal, test, unlearn, s) for s in range(6)}) == 1
  assert len({mia(equal, test, unlearn, s, limit=9) for s in range(6)}) > 1
  # 300 against 2 would call everything a member if the sides were not equal.
  assert mia(uniform(0.5, 1, 300), [0.1, 0.2], [0.05, 0.15]) == 100


def test_mia_without_scikit_learn_says_what_to_install(monkeypatch):
  monkeypatch.setitem(sys.modules, "sklearn.svm", None)
  with pytest.raises(errors.ConfigError, match=r'pip install "legonet-jax\[exp'):
    mia([0.9], [0.1], [0.5])


BAD_TABLES = [
  (normal(8), "shape"),
  (normal(0, 3), "shape"),
  (np.where(np.eye(6, 3) > 0, np.nan, 1), "nan in row 0, column 0"),
  (np.where(np.eye(6, 3) > 0, np.inf, 1), "inf in row 0, column 0"),
  ([["a"] * 3] * 6, "not an array of numbers"),
]


@pytest.mark.parametrize(("bad", "says"), [*BAD_TABLES, (normal(3, 3), "3 models")])
def test_bad_margins_of_models_are_refused_with_a_clear_line(bad, says):
  good = normal(6, 3)
  for measure in (measures.klom, measures.ulira):
    for pair in ((bad, good), (good, bad)):
      with pytest.raises(errors.SampleError, match=says):
        measure(*pair)
  with pytest.raises(errors.SampleError):
    measures.klom_null(bad)


def test_sets_of_models_that_do_not_match_are_refused():
  for measure in (measures.klom, measures.ulira):
    for other in (normal(6, 4), normal(7, 3)):
      with pytest.raises(errors.SampleError, match="equally many models"):
        measure(normal(6, 3), other)
  with pytest.raises(errors.SampleError, match="even number"):
    measures.klom_null(normal(9, 3))


@pytest.mark.parametrize(
  ("values", "labels", "says"),
  [
    *[(bad, [0] * 6, says) for bad, says in BAD_TABLES],
    (normal(3, 1), [0] * 3, "1 class"),
    (normal(3, 2), [0] * 2, r"shape \(2,\)"),
    (normal(3, 2), [0.0] * 3, "type float64"),
    (normal(3, 2), [0, 2, 0], "label 2 in row 1"),
    (normal(3, 2), [0, 0, -1], "label -1 in row 2"),
  ],
)
def test_bad_scores_and_labels_are_refused_with_a_clear_line(values, labels, says):
  for measure in (measures.accuracy, measures.margins, measures.margins_of_probs):
    with pytest.raises(errors.SampleError, match=says):
      measure(values, labels)


def test_logits_are_refused_where_probabilities_are_meant():
  logits, y = np.array([[2.0, -1.0]]), [0]
  with pytest.raises(errors.SampleError, match="not logits"):
    measures.margins_of_probs(logits, y)
  p = [[0.5, 0.5]]
  with pytest.raises(errors.SampleError, match="p_unlearn range from -1 to 2"):
    measures.mia_efficacy(p, y, p, y, logits, y, seed=0)


def test_settings_out_of_range_are_refused():
  a, share = normal(4, 3), Accuracies(90.0, 80.0, 85.0)
  for call in (
    lambda: measures.klom(a, a, bins=1),
    lambda: measures.ulira(a, a, fpr=0.0),
    lambda: measures.ulira(a, a, fpr=1.0),
    lambda: measures.ulira(a, a, resamples=0),
    lambda: mia([0.9], [0.1], [0.5], limit=0),
  ):
    with pytest.raises(errors.ConfigError):
      call()
  for bad in (share._replace(test=101.0), share._replace(retain=math.nan)):
    with pytest.raises(errors.SampleError, match="give percent"):
      measures.tow(share, bad)
