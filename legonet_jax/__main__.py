"""The command `legonet`, also as `python -m legonet_jax` where that is not on the path.

Everything else is imported where a Ctrl-C is told in one line.
"""

import signal
import sys
import threading
import types


def main() -> int:
  """Runs one command and returns its exit code."""
  _keep_interrupts()
  try:
    from legonet_jax.cli import main as cli

    code = cli.main()
  except KeyboardInterrupt:
    print("legonet: interrupted, nothing was begun", file=sys.stderr)
    code = 130
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # the answer is out, and it stands
  # One of JAX's may have been interrupted while it started; Python would wait for it.
  for thread in threading.enumerate():
    if isinstance(thread, threading.Timer):
      thread.cancel()
  return code


def _keep_interrupts() -> None:
  """Makes sure that no Ctrl-C is lost, or taken for something else.

  Python ignores exceptions in callbacks of its garbage collector, and C++ modules turn
  one that interrupts their import into errors or crashes. A Ctrl-C that arrives there
  is raised again a moment later.
  """
  tell = sys.unraisablehook

  def hook(found: "sys.UnraisableHookArgs") -> None:
    if found.exc_type is KeyboardInterrupt:
      _raise_later()
    else:
      tell(found)

  if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = hook


def _interrupt(number: int, frame: types.FrameType | None) -> None:
  while frame is not None:
    if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
      _raise_later()
      return
    frame = frame.f_back
  raise KeyboardInterrupt


def _raise_later() -> None:
  timer = threading.Timer(0.02, signal.raise_signal, [signal.SIGINT])
  timer.daemon = True
  timer.start()


if __name__ == "__main__":
  sys.exit(main())
