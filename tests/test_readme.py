"""The README does what it says."""

import functools
import pathlib
import re

from conftest import encodings, labels
import jax
import jax.numpy as jnp
import numpy as np

import legonet_jax as lego

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
  return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_no_page_has_a_number_that_is_yet_to_come():
  """Pages are written with capitals in place of what is to be measured."""
  for page in (ROOT / "docs").glob("*.md"):
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    assert not re.findall(
      r"^[A-Z_]{4,}$|\b(?!SISA)[A-Z]{4,}[0-9A-Z]* m?s\b", text, re.M
    )


def test_the_ten_lines_of_api_run_as_written():
  code = next(block for block in blocks("python") if "lego.fit" in block)
  small = code.replace("num_adapters=1000", "num_adapters=20")
  assert small != code
  names = {
    "encodings": encodings(80),
    "labels": labels(80),
    "ids": np.arange(80),
    "test_encodings": encodings(5, seed=1),
    "new": lego.make_samples(
      lego.LegoConfig(num_classes=10), encodings(3, seed=2), [0, 1, 2], [90, 91, 92]
    ),
  }
  exec(small, names)
  assert names["probs"].shape == (5, 10)
  assert set(names["state"].ids) == {*range(80), 90, 91, 92} - {17, 42}


def test_the_program_in_ten_lines_runs_as_written_and_gives_the_same_bits():
  code = next(block for block in blocks("python") if "functional" in block)
  cfg = lego.LegoConfig(num_classes=3, num_adapters=8, top_k=2)
  names = {
    "cfg": cfg,
    "N": 60,
    "samples": lego.make_samples(cfg, encodings(), labels()),
    "rows": jnp.asarray([5]),
    "stream": jnp.asarray([[7], [9], [30]]),
    "seeds": jnp.arange(2),
    "masks": jnp.ones((2, 60), bool).at[1, 20:].set(False),
    "test_encodings": encodings(5, seed=1),
    "functools": functools,
    "jax": jax,
    "jnp": jnp,
  }
  exec(code, names)
  host, _ = lego.fit(
    cfg, lego.select(names["samples"], np.delete(range(60), [5, 7, 9, 30]))
  )
  np.testing.assert_array_equal(names["state"].weights, host.model.weights)
  assert names["shadows"].weights.shape == (2, 8, 3, 7)
  assert names["probs"].shape == (5, 3)


def test_ci_runs_the_test_command_of_the_readme():
  command = next(block for block in blocks("bash") if "pytest" in block).strip()
  assert command in (ROOT / ".ci" / "run").read_text().splitlines()
  assert "pip install -e . && legonet quickstart" in [b.strip() for b in blocks("bash")]
