"""A Python environment to run commands in, of this machine or of a root folder."""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

TREE = pathlib.Path(__file__).resolve().parent.parent
_NOT_COPIED = (
  ".git", ".*cache", ".hypothesis", ".venv", "__pycache__", "*.egg-info", "build",
  "dist", "site",
)  # fmt: skip


class StepError(Exception):
  """A step of an environment failed; the message is one line that says why."""


@dataclasses.dataclass(frozen=True)
class Place:
  """Where an environment is made.

  Attributes:
    python: the interpreter, as it is called inside of `root`.
    release: the release of jax, or `newest`.
    folder: for the environment, as it is called outside of `root`.
    root: the root folder that commands run in, or None for the machine's own.
    timeout: seconds that one command may take.
  """

  python: str
  release: str
  folder: pathlib.Path
  root: pathlib.Path | None
  timeout: float

  def inside(self, *parts: str) -> str:
    """A path in the folder, as commands of this place see it."""
    path = self.folder.joinpath(*parts)
    return str(path) if self.root is None else f"/{path.relative_to(self.root)}"

  def run(
    self,
    *command: str,
    accept: Sequence[int] = (0,),
    inside_tree: bool = False,
    needs_output: bool = False,
  ) -> str:
    """The standard output of a command; StepError unless its exit code is accepted."""
    work = self.inside("tree") if inside_tree else self.inside()
    script = ["/bin/sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", work, *command]
    full = script if self.root is None else ["chroot", str(self.root), *script]
    unset = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "JAX_COMPILATION_CACHE_DIR")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env["LEGONET_CACHE"] = self.inside("cache")
    # Its own tests come first on the path, as in an activated environment.
    env["PATH"] = f"{self.inside('venv', 'bin')}:{env.get('PATH', os.defpath)}"
    with _started(full, env) as process:
      try:
        out, err = process.communicate(timeout=self.timeout)
      except subprocess.TimeoutExpired:
        raise StepError(f"{command[0]} took over {self.timeout:.0f} s") from None
    if process.returncode not in accept or (needs_output and not out.strip()):
      raise StepError(_last_line(err) or _last_line(out) or f"{command[0]} failed")
    return out


@contextlib.contextmanager
def _started(
  command: list[str], env: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
  """A process in a group of its own, of which nothing is left at the end."""
  process = subprocess.Popen(
    command,
    env=env,
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    errors="replace",
    start_new_session=True,
  )
  try:
    yield process
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(text: str) -> str:
  """The last line that says something, preferably one that says what is wrong."""
  lines = [line.strip() for line in text.splitlines() if line.strip()]
  errors = [line for line in lines if line.lower().startswith(("error:", "e   "))]
  errors = [
    line.partition(" ")[2].strip() for line in errors if "for help visit" not in line
  ]
  return (errors or lines or [""])[-1][:300]


def install(place: Place, extra: str = "") -> None:
  """Copies this tree there and installs it, with the release of jax, in `venv`."""
  tree = place.folder / "tree"
  if tree.exists():  # kept from another time
    shutil.rmtree(tree)
  shutil.copytree(TREE, tree, ignore=shutil.ignore_patterns(*_NOT_COPIED))
  if not (place.folder / "venv").exists():
    place.run(place.python, "-m", "venv", place.inside("venv"))
  wanted = [place.inside("tree") + (f"[{extra}]" if extra else "")]
  if place.release == "newest":
    wanted += ["--upgrade", "jax", "jaxlib"]
  else:
    wanted += [f"jax=={place.release}", f"jaxlib=={place.release}"]
  place.run(place.inside("venv/bin/python"), "-m", "pip", "install", "-q", *wanted)


def check_root(root: pathlib.Path) -> pathlib.Path:
  """The root folder, if commands can run in it; else the program ends."""
  root = root.resolve()
  if not (root / "proc/self").exists():
    raise SystemExit(f"{root} is no root folder with /proc mounted; make one first")
  if os.geteuid():
    raise SystemExit("--chroot needs root's rights; run it as root")
  return root


@contextlib.contextmanager
def work_folder(
  keep: pathlib.Path | None, root: pathlib.Path | None
) -> Iterator[pathlib.Path]:
  """The folder of all environments: kept, or gone at the end."""
  if keep is not None:
    if root is not None and root not in keep.resolve().parents:
      raise SystemExit(f"--keep {keep} is not inside of {root}; name a folder there")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()
    return
  with tempfile.TemporaryDirectory(
    prefix="legonet-places-",
    dir=None if root is None else root / "tmp",
    ignore_cleanup_errors=True,
  ) as folder:
    yield pathlib.Path(folder).resolve()
