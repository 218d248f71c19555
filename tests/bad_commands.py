"""Bad command lines on a sound world: what is wrong is in the options alone.

Each table is of one command: what follows its name, and a part of the message. What the
paths lead to is in `bad_world.make_world`.
"""

from bad_options import (
  DIGITS,
  ENCODE,
  FIT,
  FIT_OPTIONS,
  HUGE,
  IMPORT,
  NO_FLOAT,
  NO_INT,
  NOTHING,
  ODD,
  QUICKSTART,
)

CERTIFIED = "--certificate certificate.json --encodings store"
PREDICT = {
  "run": "required: --encodings",
  "run --encodings none": "neither an encoding store nor an .npz",
  "run --encodings run": "neither an encoding store nor an .npz",
  "run --encodings empty": "neither an encoding store nor an .npz",
  "run --encodings fifo": "not a regular file",
  "run --encodings /dev/zero": "not a regular file",
  "run --encodings words.txt": "not a readable .npz",
  "run --encodings images.npz": "no array 'encodings'",
  "run --encodings wide.npz": "encodings have shape",
  f"run --encodings '{ODD}'": r"\x1b[31mred line\udcff is neither",
  "run --encodings store --split both": "invalid choice: 'both'",
  "run --encodings new.npz --split test": "no such rows",
  "run --encodings store --ids": "expected at least one argument",
  "run --encodings store --ids 7": "no sample with id 7",
  "run --encodings store --ids 100 7": "no sample with id 7",
  "run --encodings store --ids -100": "no sample with id -100",
  f"run --encodings store --ids {HUGE}": "beyond 64 bits",
  f"run --encodings store --ids {DIGITS}": NO_INT,
  "run --encodings store --ids one": NO_INT,
  "run --encodings store --out none/x.npz": "no folder none",
  "run --encodings store --out folder.png": "folder.png is a folder",
  "run --encodings store --out all.npz": "all.npz is something else",
  "run --encodings store --out words.txt": "words.txt is something else",
  "run --encodings store --out run/run.json": "inside of run",
  "run --encodings store --out run/x.npz": "inside of run",
  "run --encodings store --out fifo": "not a regular file",
  "run --encodings store --out ''": "--out . is a folder",
  "run --encodings store --out all.npz/x.npz": "no folder all.npz",
}
EVALUATE = {
  "run --encodings none": "neither an encoding store nor an .npz",
  "run --encodings empty": "neither an encoding store nor an .npz",
  "run --encodings words.txt": "not a readable .npz",
  "run --encodings fifo": "not a regular file",
  "run --encodings wide.npz": "encodings have shape",
  "run --encodings far.npz": "label 3",
  "run --encodings named_store": "names its classes",
  "named --encodings new.npz": "does not name its classes",
  "named --encodings far.npz --label-numbers": "label 3",
  "named --encodings other_names.npz": "class 'emu'",
  "run --label-number 3": "unrecognized arguments: 3",
}
UNLEARN = {
  "run": "one of the arguments --ids --ids-file --class --random --erased is required",
  "run --ids 7": "holds no sample 7",
  "run --ids 100 7": "holds no sample 7",
  "run --ids 100 100": "id 100 is named twice",
  "run --ids 129": "holds no sample 129",
  "run --ids -100": "holds no sample -100",
  f"run --ids {HUGE}": "beyond 64 bits",
  f"run --ids -{HUGE}": "beyond 64 bits",
  f"run --ids {DIGITS}": NO_INT,
  f"run --ids {' '.join(map(str, range(20_000)))}": "holds no sample 0",
  "run --ids": "expected at least one argument",
  "run --ids 1e2": NO_INT,
  "run --ids 100 --class 1": "not allowed with argument",
  "run --ids-file none.txt": "no file none.txt",
  "run --ids-file empty": "not a regular file",
  "run --ids-file fifo": "not a regular file",
  "run --ids-file /dev/zero": "not a regular file",
  "run --ids-file words.txt": "not a list of ids",
  "run --ids-file all.npz": "all.npz is not a text file",
  f"run --ids-file '{ODD}'": r"no file \x1b[31mred line\udcff",
  "run --class cow": "--class is 'cow'; give 0 to 2",
  "run --class 3": "--class is '3'",
  "run --class -1": "--class is '-1'",
  "run --class ²": "--class is '²'",
  "run --class ''": "--class is ''",
  f"run --class {DIGITS}": "--class is '999",
  f"named --class '{ODD}'": "give 0 to 2 or one of cat, dog, owl",
  "named --class cow": "or one of cat, dog, owl",
  "run --random 0": "--random is 0; give 1 to 29",
  "run --random -1": "--random is -1",
  "run --random 30": "give 1 to 29",
  "run --random 27": "2 samples would be left",
  f"run --random {HUGE}": "give 1 to 29",
  "run --random 1 --seed -1": "--seed is -1",
  "run --random 1 --seed x": NO_INT,
  "run --ids 100 --defer-over -2": "--defer-over is -2",
  "run --ids 100 --defer-over x": NO_INT,
  "run --ids 100 --wait -1": "--wait is -1.0",
  "run --ids 100 --wait nan": "--wait is nan",
  "run --ids 100 --wait inf": "--wait is inf",
  "run --ids 100 --wait soon": NO_FLOAT,
  "run --ids 100 --sign-key none.key": "no key file none.key",
  "run --ids 100 --sign-key signing.key.pub": "is a public key",
  "run --ids 100 --sign-key certificate.json": "not an Ed25519 private key",
  "run --ids 100 --sign-key fifo": "not a regular file",
}
LEARN = {
  "run": "the request names no sample; give new --encodings",
  "run --ids 100": "sample 100 is in the model already",
  "run --ids 7": "no sample with id 7",
  "run --ids -1": "no sample with id -1",
  f"run --ids {HUGE}": "beyond 64 bits",
  "run --ids 129": "forgotten by this run",
  "run --ids 130 130": "id 130 is named twice",
  "run --ids-file none.txt": "no file none.txt",
  "run --ids-file words.txt": "not a list of ids",
  "run --encodings none.npz": "neither an encoding store nor an .npz",
  "run --encodings empty": "neither an encoding store nor an .npz",
  "run --encodings run": "neither an encoding store nor an .npz",
  "run --encodings fifo": "not a regular file",
  "run --encodings words.txt": "not a readable .npz",
  "run --encodings images.npz": "no array 'encodings'",
  "run --encodings wide.npz": "have width 8",
  "run --encodings far.npz": "label 3",
  "run --encodings all.npz --ids 130": "id 130 is in the run's store",
  "run --encodings store": "names no sample",
  "run --encodings named_store --ids 130": "id 100 is in the run's store",
  "run --encodings other_store": "made by another encoder",
  "run --encodings new.npz --ids 7": "no sample with id 7",
  "run --encodings new.npz --ids 500 500": "named twice",
  "run --encodings other_store --label-numbers": "--label-numbers is for .npz",
  "named --encodings new.npz": "does not name its classes",
  "named --encodings other_names.npz": "class 'emu'",
  "run --encodings named.npz": "names its classes",
  "run --encodings gone.npz": "forgotten by this run",
  "run --encodings new.npz --wait -1": "--wait is -1.0",
  "run --encodings new.npz --sign-key none.key": "no key file none.key",
}
HEAL = {
  "run --wait -1": "--wait is -1.0",
  "run --wait nan": "--wait is nan",
  "run --sign-key none.key": "no key file none.key",
  "run --ids 100": "unrecognized arguments: --ids 100",
}
COMPACT = {
  "run --wait 1e300": "--wait is 1e+300",
  "run --wait ''": NO_FLOAT,
  "run --sign-key words.txt": "not an Ed25519 private key",
  "run run": "unrecognized arguments: run",
}
STATUS = {
  "run --salt 00": "unrecognized arguments: 00",
  "run --verbose": "unrecognized arguments: --verbose",
  f"'{ODD}'": r"\x1b[31mred line\udcff is not a run",
  "/dev/zero": "/dev/zero is not a run",
  f"{'y' * 300}": "File name too long",
}
HISTORY = {
  "run --salt 00": "--salt and --ids go together",
  "run --ids 100": "--salt and --ids go together",
  "run --salt 0 --ids 100": "--salt is not hexadecimal",
  f"run --salt '{ODD}' --ids 100": "--salt is not hexadecimal",
  "run --salt ü --ids 100": "--salt is not hexadecimal",
  "run --salt '' --ids 100": "no request of the journal",
  f"run --salt {'00' * 32} --ids 100": "no request of the journal",
  f"run --salt {'00' * 9000} --ids 100": "no request of the journal",
  f"run --salt {'00' * 32} --ids {HUGE}": "beyond 64 bits",
  f"run --salt {'00' * 32} --ids -1": "no request of the journal",
  f"run --salt {'00' * 32} --ids x": NO_INT,
}
VERIFY = {
  "": "name a run, or a --certificate",
  f"run {CERTIFIED}": "name a run, or a --certificate",
  "run --adapters -1": "--adapters is -1",
  "run --adapters 5": "give 1 to 4",
  f"run --adapters {HUGE}": "give 1 to 4",
  "run --adapters all": NO_INT,
  "run --head x --since certificate.json": "give --head or --since, not both",
  "run --since none.json": "no file none.json",
  "run --since words.txt": "words.txt is not JSON",
  "run --since empty": "not a regular file",
  "run --since fifo": "not a regular file",
  "run --since run/run.json": "is not a certificate",
  "run --full --out none/c.json": "no folder none",
  "run --full --out folder.png": "folder.png is a folder",
  "run --full --out all.npz": "all.npz is something else",
  "run --full --out run/journal.jsonl": "inside of run",
  "run --full --out run/c.json": "inside of run",
  "run --full --out fifo": "not a regular file",
  "run --sign-key none.key": "no key file none.key",
  "run --public-key none.pub": "no key file none.pub",
  "run --public-key signing.key": "is a private key",
  "run --public-key words.txt": "not an Ed25519 public key",
  "run --public-key fifo": "not a regular file",
  "--certificate certificate.json": "needs the retained samples",
  "--certificate none.json --encodings store": "no file none.json",
  "--certificate words.txt --encodings store": "words.txt is not JSON",
  "--certificate empty --encodings store": "not a regular file",
  "--certificate fifo --encodings store": "not a regular file",
  "--certificate run/run.json --encodings store": "is not a certificate",
  "--certificate run/head.json --encodings store": "a signed head, not a certificate",
  f"--certificate '{ODD}' --encodings store": r"no file \x1b[31mred line\udcff",
  "--certificate certificate.json --encodings none": "neither an encoding store",
  "--certificate certificate.json --encodings run": "neither an encoding store",
  "--certificate certificate.json --encodings fifo": "not a regular file",
  "--certificate certificate.json --encodings far.npz": "label 3 in row",
  "--certificate named.json --encodings other_names.npz": "class 'emu'",
  f"{CERTIFIED} --adapters 0": "--adapters is 0",
  f"{CERTIFIED} --adapters 5": "give 1 to 4",
  f"{CERTIFIED} --adapters -1": "--adapters is -1",
  f"{CERTIFIED} --ids-file none.txt": "no file none.txt",
  f"{CERTIFIED} --ids-file words.txt": "not a list of ids",
  f"{CERTIFIED} --ids-file unknown.txt": "no sample with id 7",
  f"{CERTIFIED} --public-key none.pub": "no key file none.pub",
  f"{CERTIFIED} --out x": "--out goes with RUN only",
  f"{CERTIFIED} --sign-key signing.key": "--sign-key goes with RUN only",
  f"{CERTIFIED} --head x": "--head goes with RUN only",
  "run --encodings store": "--encodings goes with --certificate only",
  "run --keys keys.npy": "--keys goes with --certificate only",
  "--certificate given.json --encodings store": "name their file with --keys",
  "--certificate given.json --encodings store --keys none.npy": "no file none.npy",
  "--certificate given.json --encodings store --keys wide_keys.npy": "keys have shape",
}
REPAIR = {
  "run": "run is sound; there is nothing to repair",
  "run --full": "unrecognized arguments: --full",
}
KEYGEN = {
  "": "required: KEY",
  "signing.key": "signing.key.pub exists",
  "alone": "alone.pub exists",
  "none/x.key": "no folder none",
  "empty": "empty is a folder",
  "all.npz/x.key": "no folder all.npz",
  "fifo": "fifo exists",
  f"{'y' * 300}": "cannot be written",
  f"'{ODD}/x'": r"no folder \x1b[31mred line\udcff",
  "x --bits 4096": "unrecognized arguments: --bits 4096",
}
UNKNOWN = "unrecognized arguments"
DOCTOR = {
  "run": f"{UNKNOWN}: run", "store": UNKNOWN, "none": UNKNOWN, "words.txt": UNKNOWN,
  "--adapters 3": UNKNOWN, "--device gpu": UNKNOWN, "--full": UNKNOWN, "''": UNKNOWN,
  "--json=1": "ignored explicit argument", "--jso run": UNKNOWN, "1 2 3": UNKNOWN,
}  # fmt: skip
OPTIONS = {
  "": NOTHING, "doctor": DOCTOR,
  "quickstart": QUICKSTART, "encode": ENCODE, "import-encodings": IMPORT,
  "fit": FIT_OPTIONS, "predict": PREDICT, "evaluate": EVALUATE, "unlearn": UNLEARN,
  "learn": LEARN, "heal": HEAL, "compact": COMPACT, "status": STATUS,
  "history": HISTORY, "verify": VERIFY, "repair": REPAIR, "keygen": KEYGEN,
}  # fmt: skip
# What every command says to what is given in the place of a run; `verify` may look at
# one that is not finished, and says that it does not hold.
ON_RUNS = {
  "predict": "--encodings new.npz", "evaluate": "", "unlearn": "--ids 100",
  "learn": "--encodings new.npz", "heal": "", "compact": "", "status": "",
  "history": "", "verify": "", "repair": "",
}  # fmt: skip
NO_RUNS = {
  "none": "none is not a run", "words.txt": "words.txt is not a run",
  "empty": "empty is not a run", "store": "store is not a run",
  "fifo": "fifo is not a run", "none --json": "none is not a run",
  "unfinished": "its fit was interrupted",
}  # fmt: skip
JSON = {
  "quickstart": ("--forget 0", "--forget is 0"),
  "import-encodings": ("none.npz --out x", "no file none.npz"),
  "fit": (f"{FIT} --adapters 99", "use fewer adapters"),
  "keygen": ("empty", "empty is a folder"),
  "frobnicate": ("", "invalid choice: 'frobnicate'"),
}


def cases():
  """(command, line, message) of every case."""
  for command, table in OPTIONS.items():
    for rest, message in table.items():
      yield command, rest, message
  for command, rest in ON_RUNS.items():
    for what, message in NO_RUNS.items():
      if (command, what) != ("verify", "unfinished"):
        yield command, f"{what} {rest}", message
  for command, (rest, message) in JSON.items():
    yield command, f"{rest} --json", message
