"""The exact form of every record in a run: which keys, and what each may hold.

A record with another key, or with other bytes than we write, could carry what was to be
forgotten. Readers (`journal`, `checkpoint`, `attest`) are lenient, so that a run of a
later version can still be served; `verify` is not.
"""

from collections.abc import Mapping
import re
from typing import Any

from legonet_jax.runs import signing
from legonet_jax.runtime.environment import NAME
from legonet_jax.store import format

_HASH = re.compile("[0-9a-f]{64}")
_SHA256 = {"sha256": _HASH}
_MARKS = [re.compile("[0-9a-f]{32}")]
_KEY = re.compile("[0-9a-f]{16}")
_REQUEST = re.compile("[0-9]{20}-[0-9a-f]{16}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?\+00:00", re.ASCII)
_NOTHING_YET = re.compile("")
_RECORDS = {
  ...: {
    "rows": int,
    "erased": int,
    "sha256": {**dict.fromkeys(format.ARRAYS, _HASH), "seals?": _HASH},
  }
}
_KINDS = re.compile("unlearn|learn|heal|compact")
# Since version 0.3 an entry names the stores that changed, and no longer all of them.
_STORES = {"stores?": _RECORDS, "changed?": _RECORDS, "gone?": {...: int}}
_ALWAYS = {"seq": int, "time": _TIME, "event": str, "prev": _HASH, "hash": _HASH}
_REPORT = {
  "before": _HASH, "after": _HASH, "adapters": int, "masked": int, "samples": int,
  "seconds": float, "lost?": int, "forgotten?": _MARKS, "relearned?": _MARKS,
  "retained?": _HASH, "key?": _KEY,
}  # fmt: skip
_REPAIR = {
  "proved": bool, "samples?": int, "retained?": _HASH, "lost?": int,
  "forgotten?": _MARKS, "key?": _KEY, "before?": _HASH, "after?": _HASH,
  "migrated?": re.compile("legonet-jax state [0-9]"),
}  # fmt: skip
_EVENTS: Mapping[str, Mapping[str, Any]] = {
  "created": {
    "config": dict, "environment?": {NAME: str}, "samples": int, "adapters?": int,
    "after": _HASH, "seconds?": float, "format?": int, "files?": {...: _HASH},
    "classes?": (None, list), "checkpoint?": int, "key?": _KEY, "retained?": _HASH,
    **_STORES,
  },
  "accepted": {
    "request": _REQUEST, "kind": _KINDS, "defer?": bool, "count": int, "ids": _MARKS,
  },
  "rejected": {
    "request": _REQUEST, "kind": re.compile("unlearn|learn|heal|compact|unknown"),
    "count": int, "ids?": _MARKS, "reason": re.compile("[A-Za-z]+"),
  },
  "complete": {"requests": [_REQUEST], **_REPORT, "checkpoint?": int, **_STORES},
  "repaired": {**_REPAIR, "checkpoint?": int, **_STORES},
}  # fmt: skip
MANIFEST: Mapping[str, Any] = {
  "number": int, "digest": _HASH, "stores": list, "environment": {NAME: str},
  "requests": [_REQUEST], "head": (_HASH, _NOTHING_YET), "masked": int,
  "report": {
    **{f"{name.removesuffix('?')}?": form for name, form in _REPORT.items()},
    "repair?": _REPAIR,
  },
  "event?": re.compile("created|complete|repaired"), "records?": _RECORDS,
  "files": {...: _HASH}, "sha256": _HASH,
}  # fmt: skip
# What a certificate holds besides the description of the state itself.
CERTIFICATE: Mapping[str, Any] = {
  "checks": [{"name": re.compile("[a-z]+"), "passed": True, "detail": str}],
  "trained_again": [int], "time": _TIME, "journal": _HASH, "sha256": _HASH,
  "config": dict,
}  # fmt: skip
STATEMENT: Mapping[str, Any] = {
  "_type": signing.STATEMENT_TYPE,
  "subject": [{"name": re.compile("legonet-jax (state|journal)"), "digest": _SHA256}],
  "predicateType": (signing.CERTIFICATE, signing.JOURNAL_HEAD),
  "predicate": dict,
}
ENVELOPE: Mapping[str, Any] = {
  "payloadType": signing.PAYLOAD_TYPE,
  "payload": str,
  "signatures": [{"keyid": _HASH, "sig": re.compile("[A-Za-z0-9+/]{86}==")}],
}
SETTINGS: Mapping[str, Any] = {
  "version": int, "config": dict, "stores": list, "classes?": (None, list),
}  # fmt: skip


def of_entry(entry: Mapping[str, Any]) -> Mapping[str, Any]:
  """The form of a journal entry."""
  return {**_ALWAYS, **_EVENTS[entry["event"]]}
