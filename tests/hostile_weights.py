"""Hostile files of weights: what a stranger could call `weights.pth`."""

import io
import json
import pickle
import struct
import zipfile

from hostile_zip import flagged, overlapping

MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
START = MAGIC + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
PROTO = b"\x80\x02"
DICT, FLOATS = b"ccollections\nOrderedDict\n", b"ctorch\nFloatStorage\n"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def text(value):
  return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
  raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
  return b"\x8a" + bytes([len(raw)]) + raw


def numbers(values):
  return b"(" + b"".join(map(number, values)) + b"t"


def storage(count, key=None):
  key = text("0") if key is None else key
  return b"(" + text("storage") + FLOATS + key + text("cpu") + number(count) + b"tQ"


def tensor(shape, strides, count=1, offset=0, store=None):
  """The instructions that make a tensor; `shape` may be instructions already."""
  parts = [s if isinstance(s, bytes) else numbers(s) for s in (shape, strides)]
  store = storage(count) if store is None else store
  return REBUILD + b"(" + store + number(offset) + parts[0] + parts[1] + b"\x89}tR"


def state(value):
  """A pickle of {"conv1.weight": value}."""
  return PROTO + b"}" + text("conv1.weight") + value + b"s."


def zipped(data, members=(("data/0", b"abcd"),), method=zipfile.ZIP_STORED):
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w", method) as archive:
    archive.writestr("archive/data.pkl", data)
    for name, content in members:
      archive.writestr(f"archive/{name}", content)
  return buffer.getvalue()


# A list is made of all of them, so that none is left on the stack.
DOUBLED = b"](K\1q\0" + b"h\0h\0\x86q\0" * 40 + b"e"


def shared_list_of_pairs():
  pairs = b"".join(b"M" + struct.pack("<H", i) + b"N\x86" for i in range(60_000))
  many = (DICT + b"h\0\x85R") * 300
  return PROTO + b"](" + pairs + b"eq\0]r\1\0\0\0(" + many + b"e."


def shared_shape():
  shape = b"(" + b"K\1" * 50_000 + b"tq\1"
  one = REBUILD + b"(h\0K\0h\1h\1\x89}tR"
  return PROTO + storage(1) + b"q\0" + shape + b"](" + one * 8_000 + b"e."


def shared_arguments():
  long = b"(" + b"K\1" * 250_000 + b"tq\0"
  one = b"ctorch._utils\n_rebuild_parameter\nq\1"
  return PROTO + long + one + b"(" + b"h\1h\0R" * 100_000 + b"t."


def colliding_keys():
  keys = b"".join(number(i * (2**61 - 1)) + b"N" for i in range(60_000))
  return PROTO + b"}(" + keys + b"u."


def legacy(tree, keys=(), tail=b""):
  return START + tree + pickle.dumps(list(keys), 2) + tail


ONE = state(tensor((1,), (1,)))
PTH = {
  "a memo index of 2**26": PROTO + b"K\1r" + struct.pack("<I", 2**26) + b".",
  "a memo index in a zip": zipped(PROTO + b"}r" + struct.pack("<I", 2**26) + b"."),
  "a number of 2 GB": PROTO + b"\x8b\xff\xff\xff\x7f.",
  "a number of negative length": PROTO + b"\x8b\xff\xff\xff\xff.",
  "a text of 4 GB": PROTO + b"X\xff\xff\xff\xff.",
  "a text of 2**62 bytes": b"\x80\4\x8d" + struct.pack("<Q", 2**62) + b".",
  "bytes of 2**40": b"\x80\4\x8e" + struct.pack("<Q", 2**40) + b".",
  "a bytearray of 1 GB": b"\x80\5\x96" + struct.pack("<Q", 1 << 30) + b".",
  "a frame of 2**40 bytes": b"\x80\4\x95" + struct.pack("<Q", 2**40) + b"}.",
  "no end": START + PROTO + b"}" * 100,
  "nothing on the stack": START + PROTO + b".",
  "a tuple without a mark": START + PROTO + b"t.",
  "a call of a number": START + PROTO + b"K\1)R.",
  "a call of a name": START + PROTO + FLOATS + b")R.",
  "an object of a class": START + PROTO + DICT + b")\x81.",
  "an extension code": START + PROTO + b"\x82\1.",
  "a text persistent id": START + PROTO + b"P0\n.",
  "12 million dicts": PROTO + b"}" * 12_000_000 + b".",
  "a tensor of one number repeated": zipped(state(tensor((1 << 28,), (0,)))),
  "a legacy tensor repeated": legacy(
    state(tensor((1 << 14, 1 << 14), (0, 0))), ["0"], struct.pack("<qf", 1, 0)
  ),
  "a storage that claims to be long": zipped(
    state(tensor((1 << 28,), (0,), count=1 << 28))
  ),
  "one long storage in many tensors": zipped(
    PROTO
    + b"}("
    + b"".join(
      text(f"t{i}") + tensor((1 << 20,), (1,), count=1 << 20) for i in range(200)
    )
    + b"u.",
    [("data/0", bytes(1 << 22))],
  ),
  "one list in many dicts": shared_list_of_pairs(),
  "one long shape in many tensors": shared_shape(),
  "one long tuple of arguments": shared_arguments(),
  "keys of one hash": colliding_keys(),
  "a key that doubles 40 times": PROTO + DOUBLED + b"}h\0Ns.",
  "a storage whose name doubles": zipped(
    PROTO + DOUBLED + state(tensor((1,), (1,), store=storage(1, b"h\0")))
  ),
  "100 dimensions": zipped(state(tensor((1,) * 100, (1,) * 100))),
  "a shape of 2**62 and 0": zipped(state(tensor((0, 2**62), (1, 1)))),
  "a shape of texts": zipped(state(tensor(b"(" + text("a") + b"t", (1,)))),
  "a negative offset": zipped(state(tensor((1,), (1,), offset=-1))),
  "an offset of 2**100": zipped(state(tensor((1,), (1,), offset=2**100))),
  "a stride of 2**62": zipped(state(tensor((2,), (2**62,), count=2))),
  "no such storage": zipped(ONE, []),
  "half a number": zipped(ONE, [("data/0", b"abc")]),
  "a legacy storage of 2**60": legacy(ONE, ["0"], struct.pack("<q", 2**60)),
  "a legacy storage of -1": legacy(ONE, ["0"], struct.pack("<q", -1)),
  "a legacy storage unknown": legacy(ONE, ["1"], struct.pack("<q", 0)),
  "legacy keys that are a number": START + ONE + PROTO + b"K\1.",
  "itself as its state dict": zipped(PROTO + b"}q\0" + text("state_dict") + b"h\0s."),
  "members that overlap": overlapping(
    [*(b"archive/data/%d" % i for i in range(150)), b"archive/data.pkl"],
    ONE + bytes(6 << 20),
  ),
  "two members of one name": zipped(
    ONE, [("data/0", b"abcd"), ("data/1", b"x")]
  ).replace(b"archive/data/1", b"archive/data/0"),
  "encrypted": flagged(zipped(ONE), 1),
  "compressed": zipped(ONE, method=zipfile.ZIP_DEFLATED),
  "compressed by bzip2": zipped(ONE, method=zipfile.ZIP_BZIP2),
  "a big-endian machine": zipped(ONE, [("data/0", b"abcd"), ("byteorder", b"big")]),
  "a zip's end alone": b"PK\3\4" + b"PK\5\6" + bytes(18),
  "nothing": b"",
  "zeros": bytes(1000),
  "a web page": b"<!DOCTYPE html><title>404</title>",
}


def safe(header, data=b""):
  raw = header if isinstance(header, bytes) else json.dumps(header).encode()
  return struct.pack("<Q", len(raw)) + raw + data


def entry(dtype="F32", shape=(1,), span=(0, 4)):
  return {"dtype": dtype, "shape": list(shape), "data_offsets": list(span)}


def one(*args, data=b"abcd", name="conv1.weight"):
  return safe({name: entry(*args)}, data)


_TWICE = json.dumps({"a": entry()})[1:-1]
SAFETENSORS = {
  "F8_E4M3": one("F8_E4M3", (4,)),
  "F8_E5M2": one("F8_E5M2", (4,)),
  "F4": one("F4", (8,)),
  "F6": one("F6_E2M3", (4, 4), (0, 12), data=bytes(12)),
  "complex numbers": one("C64", (1,), (0, 8), data=bytes(8)),
  "an unknown type": one("F99"),
  "whole numbers": one("I32"),
  "truth values": one("BOOL", (4,)),
  "NaN": one("F32", data=b"\0\0\xc0\x7f"),
  "infinity in half the bits": one("BF16", (1,), (0, 2), data=b"\x80\x7f"),
  "too large for float32": one("F64", (1,), (0, 8), data=struct.pack("<d", 1e300)),
  "a name twice": safe(f"{{{_TWICE}, {_TWICE}}}".encode(), b"abcd"),
  "a name of lines and escapes": one(name="\x1b[31m\nconv1\n.weight"),
  "a place inside another": safe(
    {
      "conv1.weight": entry("F32", (1, 1, 1, 1)),
      "conv1.kernel.weight": entry("F32", (1,), (4, 8)),
    },
    bytes(8),
  ),
  "a leaf that has leaves": one(name="bn1.scale.weight"),
  "100 dimensions": one("F32", (1,) * 100),
  "a shape of 0 and 2**62": one("F32", (0, 2**62), (0, 0), data=b""),
  "a negative shape": one("F32", (-1,)),
  "a shape of fractions": one("F32", (1.5,)),
  "a shape that is a text": safe({"a": entry() | {"shape": "1"}}, b"abcd"),
  "tensors that overlap": safe({"a": entry(), "b": entry()}, b"abcd"),
  "a gap": one("F32", (1,), (4, 8), data=bytes(8)),
  "beyond the end": one("F32", (1 << 30,), (0, 1 << 32)),
  "bytes left over": one(data=bytes(8)),
  "a header of 2**60": struct.pack("<Q", 2**60) + b"{}",
  "a header beyond the end": struct.pack("<Q", 1000) + b"{}",
  "a header nested deeply": safe(b"[" * 200_000),
  "a header that is a list": safe(b"[]"),
  "a header that is no text": safe(b"\xff\xfe\xfd"),
  "metadata of numbers": safe({"__metadata__": {"a": 1}}),
  "five bytes": b"\1\0\0\0\0",
  "nothing": b"",
}
