"""Hostile images, folders, arrays and archives: what a dataset could bring along."""

import gzip
import io
import os
import socket
import struct
import tarfile
import zipfile
import zlib

from hostile_zip import claiming, flagged, overlapping, patched, zeros
from PIL import Image


def png(width, height, chunks=(), bits=1, data=None):
  """A PNG of zeros, in black and white."""
  rows = zlib.compressobj(9)
  if data is None:
    row = bytes(1 + (width * bits + 7) // 8)
    data = b"".join(rows.compress(row * 100) for _ in range(-(-height // 100)))
    data += rows.flush()
  head = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
  made = b"\x89PNG\r\n\x1a\n"
  for kind, body in ((b"IHDR", head), *chunks, (b"IDAT", data), (b"IEND", b"")):
    made += struct.pack(">I", len(body)) + kind + body
    made += struct.pack(">I", zlib.crc32(kind + body))
  return made


def saved(image_format, size=(8, 8), mode="RGB", **options):
  buffer = io.BytesIO()
  Image.new(mode, size).save(buffer, image_format, **options)
  return buffer.getvalue()


def bmp_with_a_jump():
  """RLE8, 60,000 x 1 pixels, with jumps of 255 rows that are not there."""
  head = struct.pack("<IiiHHIIiiII", 40, 60_000, 1, 1, 8, 1, 400, 0, 0, 256, 0)
  start = 14 + len(head) + 1024
  body = b"\0\2\xff\xff" * 100
  return (
    b"BM"
    + struct.pack("<IHHI", start + len(body), 0, 0, start)
    + head
    + (bytes(1024) + body)
  )


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
_JPEG = saved("JPEG")
_SOF = _JPEG.index(b"\xff\xc0") + 5
IMAGES = {
  "an EPS named png": EPS,
  "an EPS named jpg": b"\xc5\xd0\xd3\xc6"
  + struct.pack("<II", 32, len(EPS))
  + bytes(20)
  + EPS,
  "an ICO named png": saved("ICO", (16, 16)),
  "a PCX named png": saved("PCX"),
  "81 million pixels of PNG": png(9000, 9000),
  "150 million pixels of PNG": png(12_500, 12_000),
  "a thread of 1 x 8,000": png(1, 8000),
  "a PNG that claims 2**31": png(2**31 - 1, 2**31 - 1, data=b"x"),
  "81 million pixels of GIF": saved("GIF", (9000, 9000), "P"),
  "a GIF that claims 65,535": patched(saved("GIF", mode="P"), 6, b"\xff" * 4),
  "81 million pixels of TIFF": saved("TIFF", (9000, 9000), "1", compression="group4"),
  "a JPEG that claims 65,500": patched(_JPEG, _SOF, struct.pack(">HH", 65500, 65500)),
  "a JPEG that claims 9,000": patched(_JPEG, _SOF, struct.pack(">HH", 9000, 9000)),
  "a WebP that claims 16,383": patched(
    saved("WEBP", lossless=True), 21, b"\xff\xff\xff\x0f"
  ),
  "a BMP that claims 60,000": patched(
    saved("BMP"), 18, struct.pack("<ii", 60_000, 60_000)
  ),
  "a BMP with jumps": bmp_with_a_jump(),
  "a PPM of no width": b"P6 0 5 255\n",
  "a PPM that claims 9,000": b"P5 9000 9000 255\n\0",
  "a PPM without end": b"P3 2 2 255\n" + b"1" * 100_000,
  "text that unpacks to 60 MB": png(
    8, 8, [(b"zTXt", b"a\0\0" + zlib.compress(bytes(60 << 20), 9))]
  ),
  "a profile that unpacks to 60 MB": png(
    8, 8, [(b"iCCP", b"a\0\0" + zlib.compress(bytes(60 << 20), 9))], data=b""
  ),
  "a PNG of damaged numbers": png(8, 8, data=b"x" * 20),
  "a PNG cut short": png(800, 800)[:60],
  "a TIFF of odd tags": b"II*\0\x08\0\0\0"
  + struct.pack("<H", 500)
  + bytes(range(256)) * 20,
  "a TIFF whose next is itself": b"II*\0\x08\0\0\0\0\0\x08\0\0\0",
  "an empty file": b"",
  "a web page": b"<!DOCTYPE html><title>404</title>",
}


def npy(header, data=b"", version=b"\1\0"):
  raw = header if isinstance(header, bytes) else repr(header).encode()
  size = struct.pack("<H" if version == b"\1\0" else "<I", len(raw))
  return b"\x93NUMPY" + version + size + raw + data


def described(shape, descr="|u1", fortran=False):
  return {"descr": descr, "fortran_order": fortran, "shape": shape}


def npz(method=zipfile.ZIP_STORED, **members):
  """An .npz of raw members, with sound images and labels unless they are given."""
  image = npy(described((1, 2, 2, 3)), bytes(12))
  label = npy(described((1,), "<i8"), bytes(8))
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w", method) as archive:
    for name, data in ({"images": image, "labels": label} | members).items():
      archive.writestr(f"{name}.npy", data)
  return buffer.getvalue()


NPZ = {
  "encrypted": flagged(npz(), 1),
  "1 GB of zeros by bzip2": zeros(b"images.npy", 1 << 30, zipfile.ZIP_BZIP2, 140),
  "700 MB of zeros": zeros(b"images.npy", 700 << 20, zipfile.ZIP_DEFLATED),
  "members that overlap": overlapping(
    [b"%d.npy" % i for i in range(60)], bytes(8 << 20)
  ),
  "a member that claims more": claiming(npz(), 50 << 20),
  "a member that claims less": claiming(npz(), 64),
  "two members of one name": npz(imagez=b"x").replace(b"imagez", b"images"),
  "an .npy": npy(described((1, 2, 2, 3)), bytes(12)),
  "a member that is no array": npz().replace(b"labels.npy", b"labels.txt"),
  "a member of zeros": npz(images=bytes(1000)),
  "an array cut short": npz(images=npy(described((1, 2, 2, 3)), bytes(11))),
  "a header cut short": npz(images=b"\x93NUMPY\1\0\x40\0{"),
  "a header of 4 GB": npz(images=b"\x93NUMPY\2\0\xff\xff\xff\xff{"),
  "a header nested deeply": npz(images=npy(b"(" * 9000)),
  "a header of minus signs": npz(images=npy(b"-" * 9000 + b"1")),
  "a header that calls": npz(images=npy(b"__import__('os').abort()")),
  "a header of another kind": npz(images=npy({"a": 1})),
  "pickled objects": npz(images=npy(described((1,), "|O"), b"\x80\2K\1.")),
  "a structure": npz(images=npy(described((1,), [("a", "|u1")]), b"a")),
  "a type that is a shape": npz(images=npy(described((1,), ("|u1", (4,))), b"abcd")),
  "an unknown type": npz(images=npy(described((1,), "|q9"), b"a")),
  "a type of no size": npz(images=npy(described((1 << 40,), "|V0"))),
  "a shape of 2**40": npz(images=npy(described((2**40,)))),
  "a shape of 2**100 and 0": npz(images=npy(described((2**100, 0)))),
  "a negative shape": npz(images=npy(described((-1, -12)), bytes(12))),
  "a shape of 1,000 ones": npz(images=npy(described((1,) * 1000), b"a")),
  "a shape of truth": npz(images=npy(described((True,)), b"a")),
  "one number": npz(images=npy(described(()), b"a")),
  "labels that are one number": npz(labels=npy(described(()), b"a")),
  "no labels": npz().replace(b"labels.npy", b"\x1b[31m\n.npy"),
  "classes that are no text": npz(
    classes=npy(described((1,), "<U1"), b"\xff\xff\xff\xff")
  ),
  "cut short": npz()[:-30],
  "nothing": b"",
}


def fifo(path):
  os.mkfifo(path)


def device(path):
  path.symlink_to("/dev/zero")


def bound_socket(path):
  # A path longer than 107 bytes has no room in an address.
  handle = os.open(path.parent, os.O_RDONLY)
  with socket.socket(socket.AF_UNIX) as server:
    server.bind(f"/proc/self/fd/{handle}/{path.name}")
  os.close(handle)


SPECIAL = {"a FIFO": fifo, "a device": device, "a socket": bound_socket}
SPECIAL["a folder"] = lambda path: path.mkdir()


def class_folder(path, name="1.png"):
  (path / "a").mkdir(parents=True)
  (path / "a" / "1.png").write_bytes(png(8, 8))
  (path / "b").mkdir()
  return path / "b" / name


def deep(path):
  folder = class_folder(path, "")
  here = os.open(folder, os.O_RDONLY)
  for _ in range(1500):
    os.mkdir("d", dir_fd=here)
    below = os.open("d", os.O_RDONLY, dir_fd=here)
    os.close(here)
    here = below
  os.close(here)


FOLDERS = {
  f"{name} among images": lambda path, make=make: make(class_folder(path))
  for name, make in SPECIAL.items()
} | {
  "a class that is all classes": lambda path: (
    class_folder(path).write_bytes(png(8, 8)),
    (path / "c").symlink_to("."),
  ),
  "a link to itself": lambda path: class_folder(path).symlink_to("1.png"),
  "1,500 folders in each other": deep,
}


def sparse(path, size):
  with path.open("wb") as file:
    file.truncate(size)


def archive_of_zeros(path):
  """1 GB in a member of an archive of 1 MB."""
  path.mkdir()
  member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
  member.size = 1 << 30
  zeros = gzip.compress(bytes(16 << 20), 1)
  start = gzip.compress(member.tobuf())
  (path / "cifar-10-binary.tar.gz").write_bytes(start + zeros * 65)


def folder_with(make):
  def write(path):
    folder = path / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    make(folder / "data_batch_1.bin")

  return write


CIFAR = {
  "an archive of zeros": archive_of_zeros,
  "a file of 1 GB": folder_with(lambda path: sparse(path, 1 << 30)),
  "a FIFO": folder_with(fifo),
  "a device": folder_with(device),
}
