"""A Python environment to run commands in, of this machine or of a root folder."""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess


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
