"""Wire format of a tensor, shared by the native and the Python transport.

offset  bytes  what
0       4      magic "TMTN"
4       1      version, 1
5       1      dtype, as TensorFlow's number
6       1      number of dimensions
7       1      reserved, 0
8       8      channel
16      8      bytes of data
24      8 n    dimensions
...            data, row-major, little-endian
"""

import struct
from typing import NamedTuple

from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import DType

_HEADER = struct.Struct("<4sBBBBQQ")
_MAGIC = b"TMTN"
_VERSION = 1
HEADER_BYTES = _HEADER.size
DIMENSION_BYTES = 8
MAX_DIMENSIONS = 254


class Header(NamedTuple):
    """The fixed part of a message's header."""

    dtype: int
    dimensions: int
    channel: int
    size: int


def pack_header(dtype: int, shape: tuple[int, ...], channel: int, size: int) -> bytes:
    """Return the whole header, including dimensions.

    Args:
        dtype: TensorFlow's number of the dtype.
        shape: Static shape.
        size: Bytes of the payload.
    """
    fixed = _HEADER.pack(_MAGIC, _VERSION, dtype, len(shape), 0, channel, size)
    return fixed + struct.pack(f"<{len(shape)}q", *shape)


def read_header(data: bytes | bytearray) -> Header:
    """Parse the fixed part of a header.

    Raises:
        OSError: If this is not a header: the stream is out of sync.
    """
    magic, version, dtype, dimensions, _, channel, size = _HEADER.unpack(data)
    if magic != _MAGIC or version != _VERSION:
        raise OSError(f"a tensor message begins with {magic!r} version {version}, not with {_MAGIC!r} {_VERSION}")
    return Header(dtype, dimensions, channel, size)


def check_dtype(dtype: DType) -> None:
    """Refuse dtypes whose tensors are not plain bytes.

    Raises:
        TypeError: For strings, resources, variants and quantized or sub-byte types.
    """
    is_plain = dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex
    if not is_plain or dtype.is_quantized or dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn"):
        raise TypeError(
            f"a tensor of dtype {dtype.name} cannot be sent between ranks; allowed are bool, int8 to uint64, the "
            "floating and the complex types. Put its producer and its users on one partition, or outside the model"
        )
