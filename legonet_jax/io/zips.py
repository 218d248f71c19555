"""Zip files whose members are what they claim to be."""

import struct
import zipfile
import zlib

# Errors that reading a damaged or forged zip file can raise.
DAMAGED = (
  zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, ValueError,
  RuntimeError, OverflowError, OSError,
)  # fmt: skip
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def check_members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
  """The members of a zip file of `size` bytes, by name.

  Reading a member that passes takes no more memory than its `file_size`. Reading all of
  them unpacks each byte of the file at most once.

  Raises:
    BadZipFile: if a member is encrypted, is compressed in a way whose output cannot be
      bounded, or has the name of another, or if members overlap.
  """
  members = archive.infolist()
  if any(member.flag_bits & 1 for member in members):
    raise zipfile.BadZipFile("encrypted; save it without a password")
  # Python unpacks bzip2 and LZMA in one go, however much comes out.
  if any(member.compress_type not in _KINDS for member in members):
    raise zipfile.BadZipFile("compressed by something else than deflate")
  by_name = {member.filename: member for member in members}
  if len(by_name) < len(members):
    raise zipfile.BadZipFile("two members of one name")
  if sum(member.compress_size for member in members) > size:
    raise zipfile.BadZipFile("members that overlap")
  return by_name
