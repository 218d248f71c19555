"""Certificates claim nothing that is not checked, and signatures say who claims it."""

import json
import secrets

from conftest import CONFIG
import numpy as np
import pytest
from run_world import ENCODINGS, IDS, LABELS, do, make_run, snapshot, unlearn

from legonet_jax.cli import main as cli
from legonet_jax.runs import certificate as certificate_lib, journal, key_files, signing


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  """A run, its certificate and the retained samples, and two pairs of keys."""
  folder = tmp_path_factory.mktemp("certified")
  path = make_run(folder / "world")
  do(path, unlearn(IDS[:2]))
  cert = folder / "certificate.json"
  assert cli.main(["verify", str(path), "--full", "--out", str(cert)]) == 0
  kept = np.isin(IDS, IDS[2:])
  np.savez(
    folder / "kept.npz", encodings=ENCODINGS[kept], labels=LABELS[kept], ids=IDS[kept]
  )
  for name in ("mine", "other"):
    key_files.generate(folder / name)
  snapshot(folder / "world", folder / "first")
  return folder


@pytest.fixture
def folder(made):
  snapshot(made / "first", made / "world")
  return made


def check(folder, capsys, *more, file="certificate.json"):
  """The exit code of checking a certificate, and the names of checks that failed."""
  capsys.readouterr()
  args = ["--certificate", folder / file, "--encodings", folder / "kept.npz", "--json"]
  code = cli.main(["verify", *map(str, args), *map(str, more)])
  out = capsys.readouterr()
  if code == 2:
    assert out.err.splitlines()[-1].startswith("legonet: error: ")
    return code, []
  checks = json.loads(out.out)["checks"]
  return code, [c["name"] for c in checks if not c["passed"]]


def forge(folder, change, name="forged.json"):
  """A changed certificate with a seal that is right."""
  value = json.loads((folder / "certificate.json").read_text())
  change(value)
  (folder / name).write_bytes(certificate_lib.seal(value))
  return name


def test_a_sound_certificate_holds(folder, capsys):
  for more in ([], ["--adapters", 3], ["--full"]):
    assert check(folder, capsys, *more) == (0, [])


def random_weights(value):
  value["weights"] = [secrets.token_hex(32) for _ in value["weights"]]


def random_digest(value):
  value["digest"] = secrets.token_hex(32)


def set_part(name, part):
  return lambda value: value.__setitem__(name, part)


def drop_part(name):
  return lambda value: value.__delitem__(name)


def null_weight(value):
  value["weights"][3] = None


def all_null(value):
  value["weights"] = [None] * len(value["weights"])


FORGED = {
  "random weights": (random_weights, [], "weights"),
  "a random digest": (random_digest, ["--full"], "refit"),
  "one null weight": (null_weight, [], "parts"),
  "null weights": (all_null, [], "parts"),
  "null weights, in full": (all_null, ["--full"], "parts"),
  "no weights": (drop_part("weights"), [], "parts"),
  "too few weights": (set_part("weights", []), [], "parts"),
  "weights that are no list": (set_part("weights", {}), [], "parts"),
  "no members": (drop_part("members"), [], "parts"),
  "no digest": (drop_part("digest"), [], "parts"),
  "a null digest": (set_part("digest", None), [], "parts"),
  "no keys": (drop_part("keys"), [], "parts"),
  "no routes": (drop_part("routes"), [], "parts"),
  "no retained set": (drop_part("retained"), [], "parts"),
  "no sizes": (drop_part("sizes"), [], "parts"),
  "no environment": (drop_part("environment"), [], "parts"),
  "no settings": (drop_part("config"), [], "parts"),
  "settings of another kind": (set_part("config", {"type": "x"}), [], "parts"),
  "settings that are a number": (set_part("config", 3), [], "parts"),
  "settings with a wrong value": (
    lambda value: value["config"].__setitem__("top_k", "many"),
    [],
    "parts",
  ),
  "more adapters than it has": (
    lambda value: value["config"].__setitem__("num_adapters", 10**6),
    [],
    "parts",
  ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_certificate_fails_without_being_asked_for_more(folder, name, capsys):
  change, more, failed = FORGED[name]
  assert check(folder, capsys, *more, file=forge(folder, change)) == (1, [failed])


MALFORMED = {
  "empty": b"",
  "text": b"hello",
  "a list": b"[]",
  "a number": b"1",
  "null": b"null",
  "no fields": b"{}",
  "deep": b"[" * 100_000,
  "deep objects": b'{"a":' * 100_000,
  "not UTF-8": b"\xff\xfe",
  "an envelope of nothing": b'{"payload": "", "payloadType": "", "signatures": []}',
  "an envelope of numbers": b'{"payload": 1, "payloadType": 2, "signatures": 3}',
  "an envelope that is no base64": (
    b'{"payload": "%%%", "payloadType": "x", "signatures": []}'
  ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_certificate_is_one_line_and_exit_code_2(folder, name, capsys):
  (folder / "bad.json").write_bytes(MALFORMED[name])
  assert check(folder, capsys, file="bad.json") == (2, [])


def test_a_failed_verification_writes_no_certificate(folder, capsys):
  path = folder / "world" / "run"
  (path / "notes.txt").write_text("x")
  for out in ([], ["--out", str(folder / "new.json")]):
    assert cli.main(["verify", str(path), "--full", *out]) == 1
  assert not (path / "certificate.json").exists()
  assert not (folder / "new.json").exists()


def test_no_certificate_is_made_while_adapters_are_masked(folder, capsys):
  path = folder / "world" / "run"
  do(path, unlearn(IDS[5:6], defer=True))
  assert cli.main(["verify", str(path), "--full"]) == 0
  assert "wait for `legonet heal`" in capsys.readouterr().err
  assert not (path / "certificate.json").exists()
  assert cli.main(["heal", str(path)]) == 0
  assert cli.main(["verify", str(path), "--full"]) == 0
  assert (path / "certificate.json").exists()


def signed(folder, key="mine", name="signed.json"):
  path = folder / "world" / "run"
  args = ["--full", "--sign-key", folder / key, "--out", folder / name]
  assert cli.main(["verify", str(path), *map(str, args)]) == 0
  return name


def test_a_signed_certificate_holds_for_the_signers_key_alone(folder, capsys):
  name = signed(folder)
  public = ["--public-key", folder / "mine.pub"]
  assert check(folder, capsys, *public, file=name) == (0, [])
  other = ["--public-key", folder / "other.pub"]
  assert check(folder, capsys, *other, file=name) == (1, ["signature"])
  assert check(folder, capsys, *public) == (1, ["signature"])  # not signed at all
  assert check(folder, capsys, file=name) == (0, [])
  envelope = json.loads((folder / name).read_text())
  envelope["payload"] = "A" + envelope["payload"][1:]
  (folder / "changed.json").write_text(json.dumps(envelope))
  assert check(folder, capsys, *public, file="changed.json")[0] in (1, 2)


def test_a_signed_certificate_is_an_in_toto_statement_in_a_dsse_envelope(folder):
  envelope = json.loads((folder / signed(folder)).read_text())
  assert envelope["payloadType"] == "application/vnd.in-toto+json"
  public = key_files.load_public(folder / "mine.pub")
  statement = signing.open_envelope(
    json.dumps(envelope).encode(), public, signing.CERTIFICATE
  )
  assert statement.subject_sha256 == statement.predicate["digest"]
  assert statement.predicate["config"]["num_adapters"] == CONFIG.num_adapters


def test_requests_sign_the_journals_head(folder, capsys):
  path = folder / "world" / "run"
  sign = ["--sign-key", str(folder / "mine")]
  assert cli.main(["unlearn", str(path), "--ids", str(IDS[5]), *sign]) == 0
  public = ["--public-key", str(folder / "mine.pub")]
  assert cli.main(["verify", str(path), *public]) == 0
  other = ["--public-key", str(folder / "other.pub")]
  assert cli.main(["verify", str(path), *other]) == 1
  do(path, unlearn(IDS[6:7]))  # a request that nobody signed
  assert not (path / "head.json").exists()
  assert cli.main(["verify", str(path), *public]) == 1
  assert "no signed head" in capsys.readouterr().out


def test_a_run_that_was_rolled_back_is_told_apart_by_what_came_later(folder, capsys):
  path = folder / "world" / "run"
  sign = ["--sign-key", str(folder / "mine")]
  public = ["--public-key", str(folder / "mine.pub")]
  assert cli.main(["unlearn", str(path), "--ids", str(IDS[5]), *sign]) == 0
  snapshot(folder / "world", folder / "older")
  assert cli.main(["unlearn", str(path), "--ids", str(IDS[6]), *sign]) == 0
  (folder / "head.json").write_bytes((path / "head.json").read_bytes())
  later = signed(folder)
  head = journal.read(path / "journal.jsonl")[-1]["hash"]
  since = [["--since", str(folder / later)], ["--since", str(folder / "head.json")]]
  since += [["--head", head]]
  for more in since:
    assert cli.main(["verify", str(path), *public, *more]) == 0
  snapshot(folder / "older", folder / "world")
  assert cli.main(["verify", str(path), *public]) == 0  # signed, and sound, and old
  for more in since:
    assert cli.main(["verify", str(path), *public, *more]) == 1
    assert "is NOT in the journal" in capsys.readouterr().out
  other = ["--public-key", str(folder / "other.pub")]
  assert cli.main(["verify", str(path), *other, *since[1]]) == 1


def test_a_key_that_cannot_be_read_is_said_before_anything_is_done(folder, capsys):
  path = folder / "world" / "run"
  before = (path / "journal.jsonl").read_bytes()
  for key in ("none", "certificate.json", "mine.pub"):
    args = ["unlearn", str(path), "--ids", str(IDS[5]), "--sign-key", str(folder / key)]
    assert cli.main(args) == 2
    assert capsys.readouterr().err.count("\n") == 1
  assert (path / "journal.jsonl").read_bytes() == before
