"""Writes all that a folder of cells has to say: tables, figures, one report.

    show(folder, out)

reads folder/cells/*.json and writes out/tables/*.{md,csv}, out/figures/*.{svg,png},
out/report.html and out/RESULTS.md. The same cells give the same bytes; every file is
whole or not there.
"""

import pathlib

from experiments.reproduce import figures, figures_more
from experiments.reproduce.claims import CLAIMS
from experiments.reproduce.figures import Drawing
from experiments.reproduce.judging import RULE, trend_table
from experiments.reproduce.report import provenance_tables, report
from experiments.reproduce.results import Results, load
from experiments.reproduce.table_ablation import ablation, hyperparameters
from experiments.reproduce.table_cost import cost_list, errata_table
from experiments.reproduce.table_main import main_tables
from experiments.reproduce.table_privacy import explain_table, privacy_table
from experiments.reproduce.table_summary import key_numbers, summary
from experiments.reproduce.table_time import time_table
from experiments.reproduce.tables import Table, markdown, to_csv
from experiments.reproduce.trends import TRENDS
from legonet_jax import files

Section = tuple[str, list[Table | Drawing]]


def show(
  folder: pathlib.Path, out: pathlib.Path, empty: Results | None = None
) -> list[pathlib.Path]:
  """Reads the cells of `folder`, writes to `out`, returns the paths written."""
  results = load(folder, empty)
  sections = make_sections(results)
  written: dict[pathlib.Path, bytes] = {}
  every = [item for _, items in sections for item in items]
  for item in [*every, *provenance_tables(results)]:
    if isinstance(item, Table):
      written[out / "tables" / f"{item.name}.md"] = markdown(item).encode()
      written[out / "tables" / f"{item.name}.csv"] = to_csv(item).encode()
    else:
      written[out / "figures" / f"{item.name}.svg"] = item.svg
      written[out / "figures" / f"{item.name}.png"] = item.png
  written[out / "RESULTS.md"] = joined(results, sections).encode()
  written[out / "report.html"] = report(results, sections).encode()
  for path, content in written.items():
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, content)
  return list(written)


def make_sections(results: Results) -> list[Section]:
  """All tables and figures, in the order in which they are read."""
  drawn: dict[str, list[Drawing | None]] = {
    "main": [figures_more.bars(results, s) for s in ("encodings", "images")],
    "ablation": [figures.accuracy_and_time(results)],
    "n and k": [figures.hyperparameters(results)],
    "privacy": [figures_more.privacy(results)],
    "cost": [figures_more.costs(results)],
  }

  def with_figures(name: str, tables: list[Table]) -> list[Table | Drawing]:
    return [*(drawing for drawing in drawn[name] if drawing), *tables]

  claims = trend_table(
    results,
    "claims",
    "Unlearning: exactness, baselines, privacy",
    f"What the paper and this library say about unlearning. {RULE}",
    CLAIMS,
  )
  trends = trend_table(
    results,
    "trends",
    "Trends that the paper states",
    f"Statements of the paper about accuracy and time, judged by our numbers. {RULE}",
    TRENDS,
  )
  compared = [*ablation(results), time_table(results)]
  return [
    ("Summary", [summary(results), key_numbers(results)]),
    ("Unlearning tasks", with_figures("main", main_tables(results))),
    ("Ablation and time", with_figures("ablation", compared)),
    (
      "n and k",
      with_figures("n and k", [*hyperparameters(results), explain_table(results)]),
    ),
    ("Privacy", with_figures("privacy", [privacy_table(results)])),
    ("Cost", with_figures("cost", cost_list())),
    ("Evidence", [claims, trends]),
    ("Errata", [errata_table()]),
  ]


def joined(results: Results, sections: list[Section]) -> str:
  """All tables and figures in one Markdown file."""
  parts = [f"# Results: {results.dataset}, scale {results.scale}\n"]
  last: Section = ("Provenance", [provenance_tables(results)[0]])
  for heading, items in [*sections, last]:
    parts.append(f"## {heading}\n")
    for item in items:
      if isinstance(item, Table):
        parts.append(markdown(item, level=3))
      else:
        image = f"![{item.title}](figures/{item.name}.svg)"
        parts.append(f"### {item.title}\n\n{image}\n\n{item.caption}\n")
  return "\n".join(parts)
