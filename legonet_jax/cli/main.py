"""`legonet COMMAND ...`: finds the command and turns errors into one clear line.

Exit codes: 0 done, 1 a proof failed, 2 bad input, 130 interrupted. Only the module of
the wanted command is imported, and JAX only when the command runs.
"""

import argparse
from collections.abc import Sequence
import importlib
import io
import os
import re
import sys
from typing import NoReturn

import legonet_jax
from legonet_jax import errors
from legonet_jax.cli import common, console

COMMANDS = {
  "quickstart": "fit on the embedded data, forget samples and a class, prove both",
  "doctor": "check that JAX computes correctly on this machine",
  "encode": "compute the encodings of a dataset",
  "import-encodings": "make a store from an .npz of encodings (CLIP, DINO, text)",
  "fit": "fit a model into a run",
  "predict": "class probabilities of encodings",
  "evaluate": "accuracy on test samples",
  "unlearn": "forget samples, durably",
  "learn": "learn new samples, durably",
  "heal": "train masked adapters",
  "compact": "merge the run's own stores",
  "status": "the state of a run: samples, adapters, waiting requests",
  "history": "the journal of a run",
  "verify": "check a run, or a certificate without the run",
  "repair": "make a damaged checkpoint again",
  "migrate": "bring a run of an earlier version up to date",
  "keygen": "make a key for signing certificates",
}


class _Parser(argparse.ArgumentParser):
  """A parser that reports errors in one line, as the commands do."""

  def error(self, message: str) -> NoReturn:
    if re.match("unrecognized arguments:.* --import\\b", message):
      message += "; put --import before the command"
    console.complain(f"{message}; see `{self.prog} --help`")
    self.exit(2)


def make_parser(wanted: Sequence[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
  """The parser of all commands; only those `wanted` have their options."""
  parser = _Parser(
    prog="legonet",
    description="Exact machine unlearning that you can prove.",
    epilog="Start with: legonet quickstart",
  )
  parser.add_argument(
    "--version", action="version", version=f"legonet-jax {legonet_jax.__version__}"
  )
  parser.add_argument(
    "--import",
    dest="modules",
    action="append",
    default=[],
    metavar="MODULE",
    help="import this module first; it defines a solver of your own",
  )
  commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
  for name, brief in COMMANDS.items():
    command = commands.add_parser(
      name, help=brief, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if name in wanted:
      module = importlib.import_module(f"legonet_jax.cli.{name.replace('-', '_')}")
      command.description = module.TEXT
      module.add_arguments(command)
      command.add_argument("--json", action="store_true", help="print JSON only")
      command.set_defaults(run=module.run)
  return parser


def main(argv: Sequence[str] | None = None) -> int:
  """Runs one command and returns its exit code."""
  # On most Intel processors XLA mistakes executables from its own cache for foreign
  # ones and prints pages of warnings (openxla/xla 44565). Real failures are exceptions.
  # JAX reads this variable when it is imported, and sets it to 1 if it is not set. So a
  # 1 comes most often from a Python process that has started this one.
  if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1") == "1":
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
  _prepare_output()
  begun = False
  try:
    words = sys.argv[1:] if argv is None else list(argv)
    args = make_parser(tuple(w for w in words if w in COMMANDS)).parse_args(words)
    common.import_own(args.modules)
    legonet_jax.runtime.compile_cache.use_compile_cache()
    begun = True
    code: int = args.run(args)
    sys.stdout.flush()
    return code
  except BrokenPipeError:
    # The reader has closed the pipe (`legonet predict ... | head`). The buffer's rest
    # goes to /dev/null, so that Python does not report it when it exits.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
  except errors.LegoError as e:
    console.complain(e)
    return 2
  except OSError as e:
    console.complain(_tell(e))
    return 2
  except (MemoryError, RuntimeError) as e:
    if isinstance(e, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(e):
      raise
    why = f" ({e})" if str(e) else ""
    console.complain(f"there is not enough memory for this{why}; ask for less")
    return 2
  except KeyboardInterrupt:
    what = "nothing is half-written; the same command goes on"
    print(
      f"legonet: interrupted, {what if begun else 'nothing was begun'}", file=sys.stderr
    )
    return 130


def _prepare_output() -> None:
  """Keeps closed streams and unprintable characters from ending a command."""
  for name in ("stdout", "stderr"):
    if getattr(sys, name) is None:  # the caller has closed it: `legonet ... >&-`
      setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open until the end)
  if isinstance(sys.stdout, io.TextIOWrapper):
    # One character that the terminal's encoding lacks must not lose all output.
    sys.stdout.reconfigure(errors="backslashreplace")


def _tell(e: OSError) -> str:
  """The system's error and the file that it is about."""
  name = e.filename2 or e.filename
  if e.strerror is None or not isinstance(name, (str, bytes)):
    return str(e)
  where = os.fsdecode(name)
  return f"{where}: {e.strerror}; check the path, its permissions and the disk"
