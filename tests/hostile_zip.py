"""Zip files that no program would write."""

import base64
import struct
import zipfile
import zlib

# 1 GB of zeros, packed by bzip2, packed.
_BZIP2_ZEROS = (
  b"c-nJ{%CIzaj8qGb<l}sFpE17Af#CoH1BU{GL4&WG(*o6%Tn*Dl<wxa*zPv|G{7Htcpc5c@7O;vlteV"
  b"RvDmf>*bn=TAxmpBF_}1}+2>|5%?Ck"
)


def patched(data, at, new):
  return data[:at] + new + data[at + len(new) :]


def flagged(archive, bit):
  """A zip file whose members all have a flag set, in both of their headers."""
  blob = bytearray(archive)
  for signature, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
    start = 0
    while (start := blob.find(signature, start)) >= 0:
      blob[start + at] |= bit
      start += 4
  return bytes(blob)


def claiming(archive, size):
  """A zip file whose first member claims another size than it has."""
  at = archive.index(b"PK\1\2")
  archive = patched(archive, at + 24, struct.pack("<I", size))
  return patched(archive, 22, struct.pack("<I", size))


def zeros(name, size, method, claimed=None):
  """One member of many zeros, packed by deflate or bzip2 at once."""
  if method == zipfile.ZIP_BZIP2:
    packed = zlib.decompress(base64.b85decode(_BZIP2_ZEROS))
  else:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = piece * (size >> 20) + b"\3\0"
  fields = _fields(name, method, 0, len(packed), size if claimed is None else claimed)
  body = b"PK\3\4" + fields + name + packed
  return body + _directory([(fields, name, 0)], len(body))


def overlapping(names, kernel):
  """A valid zip file in which every member holds all members after it."""
  tail, found = kernel, []
  for name in reversed(names):
    fields = _fields(name, 0, zlib.crc32(tail), len(tail), len(tail))
    tail = b"PK\3\4" + fields + name + tail
    found.append((fields, name, len(tail)))
  starts = [(fields, name, len(tail) - length) for fields, name, length in found]
  return tail + _directory(starts, len(tail))


def _fields(name, method, crc, packed, size):
  """What both headers of a member share."""
  return struct.pack(
    "<HHHHHIIIHH", 46, 0, method, 0, 33, crc, packed, size, len(name), 0
  )


def _directory(members, start):
  entries = b"".join(
    b"PK\1\2\x2e\0" + fields + struct.pack("<HHHII", 0, 0, 0, 0, at) + name
    for fields, name, at in members
  )
  counts = struct.pack("<HHHH", 0, 0, len(members), len(members))
  return entries + b"PK\5\6" + counts + struct.pack("<IIH", len(entries), start, 0)
