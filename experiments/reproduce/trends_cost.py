"""Trends of time and of computed cost."""

from collections.abc import Callable

from experiments.reproduce.judging import CONFIRMED, REFUTED, Finding, below, combine
from experiments.reproduce.results import Results, welch
from experiments.reproduce.table_time import share, timings
from experiments.reproduce.tables import SOLVERS, where_of
from legonet_jax import cost

LITTLE = 5.0  # percent of parameters or MACs that we call "little"


def faster(results: Results) -> list[Finding]:
  """LegoNet against SISA at the same segmentation; requests are independent."""
  timed, found = timings(results), []
  for solver in SOLVERS:
    verdicts, words = [], []
    for segmentation, at in timed.items():
      sisa = next((t for who, t in at.items() if who[0] == "sisa"), None)
      lego = at.get(("lego", solver, 10))
      if sisa and lego:
        verdicts.append(below(welch(lego.requests, sisa.requests)))
        part = share(timed, ("lego", solver, 10), segmentation, segmentation)
        words.append(f"{segmentation}: {part:.2f} % of SISA's time")
    evidence = "At s = n/k = " + ", ".join(words) if words else ""
    where = where_of(results, "time")
    found.append(Finding(combine(verdicts), evidence, SOLVERS[solver], where))
  return found


def little(what: str) -> Callable[[Results], list[Finding]]:
  """Parameters from n = 1 to 1000, or MACs from k = 1 to 20, as in Figure 5."""
  sizes = ((1, 1), (1000, 1)) if what == "parameters" else ((1000, 1), (1000, 20))

  def judge(results: Results) -> list[Finding]:
    setting = cost.Setting(num_classes=100 if results.dataset == "cifar100" else 10)
    few, many = (
      getattr(cost.count_model(setting, cost.legonet(*size)), what) for size in sizes
    )
    more = 100 * (many / few - 1)
    evidence = f"{what} from {few:,} to {many:,}: +{more:.3g} %"
    verdict = CONFIRMED if more < LITTLE else REFUTED
    where = f"ResNet-34, 224 px, C = {setting.num_classes}, computed"
    return [Finding(verdict, evidence, where=where)]

  return judge
