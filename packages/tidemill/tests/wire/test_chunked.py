"""The chunk decoder: AWS's published examples, with every byte flipped, and every split of every body."""

import base64
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.errors import AwsError
from tidemill.wire.bodies.body import new_checksum
from tidemill.wire.bodies.chunked import ChunkedDecoder, ChunkSigner
from tidemill.wire.signing.sigv4 import signing_key

# Example: "Signature calculations for the authorization header: transferring a payload in multiple chunks".
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SCOPE = "20130524/us-east-1/s3/aws4_request"
STAMP = "20130524T000000Z"
SIZE = 66560
PLAIN_SEED = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
PLAIN_SIGNATURES = (
    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
)
TRAILER_SEED = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"
TRAILER_SIGNATURES = (
    "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
    "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
    "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
)
TRAILER_SIGNATURE = "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"
CRC32C = "sOO8/Q=="
NAME = "x-amz-checksum-crc32c"


def chunks(signatures: tuple[str, ...]) -> bytes:
    sizes = (65536, 1024, 0)
    parts = [f"{size:x};chunk-signature={text}\r\n".encode() for size, text in zip(sizes, signatures, strict=True)]
    return parts[0] + b"a" * 65536 + b"\r\n" + parts[1] + b"a" * 1024 + b"\r\n" + parts[2]


VECTORS = {
    "plain": (PLAIN_SEED, None, chunks(PLAIN_SIGNATURES) + b"\r\n"),
    "trailer": (
        TRAILER_SEED,
        frozenset([NAME]),
        chunks(TRAILER_SIGNATURES) + f"{NAME}:{CRC32C}\r\nx-amz-trailer-signature:{TRAILER_SIGNATURE}\r\n\r\n".encode(),
    ),
}


def decoder(name: str) -> ChunkedDecoder:
    seed, trailers, _ = VECTORS[name]
    key = signing_key(SECRET, "20130524", "us-east-1", "s3")
    signer = ChunkSigner(key, STAMP, SCOPE, seed)
    return ChunkedDecoder(decoded_bytes=SIZE, signer=signer, trailers=trailers)


def decode(target: ChunkedDecoder, body: bytes, step: int) -> tuple[bytes, dict[str, str]]:
    pieces = [piece for at in range(0, len(body), step) for piece in target.feed(body[at : at + step])]
    return b"".join(pieces), target.finish()


@pytest.mark.parametrize("step", [1 << 20, 1000, 7])
@pytest.mark.parametrize("name", VECTORS)
def test_the_published_examples_verify_however_they_are_cut(name: str, step: int) -> None:
    data, trailers = decode(decoder(name), VECTORS[name][2], step)
    assert data == b"a" * SIZE
    assert trailers == ({NAME: CRC32C} if name == "trailer" else {})


def test_the_published_checksum_is_that_of_the_data() -> None:
    checksum = new_checksum("crc32c")
    checksum.update(b"a" * SIZE)
    assert base64.b64encode(checksum.digest()).decode() == CRC32C


@pytest.mark.parametrize("name", VECTORS)
def test_every_flipped_byte_of_a_published_example_is_noticed(name: str) -> None:
    body = VECTORS[name][2]
    frame = [*range(90), 65_000, *range(65_620, 65_730), 66_500, *range(66_740, len(body))]
    for position in frame:
        if position >= len(body):
            continue
        spoilt = bytearray(body)
        spoilt[position] ^= 0x01
        # The other case of a hexadecimal digit means the same size: the only harmless change.
        with pytest.raises(AwsError) as caught:
            decode(decoder(name), bytes(spoilt), 1 << 20)
        assert 400 <= caught.value.status < 500


@pytest.mark.parametrize("name", VECTORS)
def test_a_body_that_ends_anywhere_early_is_incomplete(name: str) -> None:
    body = VECTORS[name][2]
    for end in [*range(0, 95, 7), 30_000, 65_622, *range(65_700, len(body), 61), len(body) - 1]:
        with pytest.raises(AwsError) as caught:
            decode(decoder(name), body[:end], 1 << 20)
        assert caught.value.code == "IncompleteBody"


def unsigned(pieces: list[bytes], trailer: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailer + b"\r\n"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8), st.integers(1, 400), st.booleans())
def test_any_pieces_cut_anywhere_come_out_whole(pieces: list[bytes], step: int, trailed: bool) -> None:
    target = ChunkedDecoder(
        decoded_bytes=sum(map(len, pieces)), signer=None, trailers=frozenset([NAME]) if trailed else None
    )
    body = unsigned(pieces, f"{NAME}: {CRC32C}\r\n".encode() if trailed else b"")
    assert decode(target, body, step) == (b"".join(pieces), {NAME: CRC32C} if trailed else {})


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.integers(1, 50), st.booleans(), st.booleans())
def test_any_bytes_are_decoded_or_refused_and_nothing_else(data: bytes, step: int, signed: bool, trailed: bool) -> None:
    signer = ChunkSigner(b"k" * 32, STAMP, SCOPE, "0" * 64) if signed else None
    target = ChunkedDecoder(decoded_bytes=5, signer=signer, trailers=frozenset([NAME]) if trailed else None)
    try:
        decode(target, data, step)
    except AwsError as error:
        assert 400 <= error.status < 500


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_changed_body_is_refused_or_means_the_same(data: st.DataObject) -> None:
    pieces = [b"hello", b"world" * 10]
    body = bytearray(unsigned(pieces, f"{NAME}:{CRC32C}\r\n".encode()))
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] = data.draw(st.integers(0, 255))
    target = ChunkedDecoder(decoded_bytes=55, signer=None, trailers=frozenset([NAME]))
    try:
        decoded, _ = decode(target, bytes(body), 13)
    except AwsError as error:
        assert 400 <= error.status < 500
    else:
        assert len(decoded) == 55


@pytest.mark.parametrize("algorithm", ["crc32", "crc32c", "crc64nvme", "md5", "sha1", "sha256", "sha512", "xxhash64"])
def test_a_running_checksum_does_not_depend_on_the_cuts(algorithm: str) -> None:
    whole, cut = new_checksum(algorithm), new_checksum(algorithm)
    data = bytes(range(256)) * 10
    whole.update(data)
    for at in range(0, len(data), 33):
        cut.update(data[at : at + 33])
    assert whole.digest() == cut.digest()
    if algorithm == "sha256":
        assert whole.digest() == hashlib.sha256(data).digest()


def test_the_cyclic_checksums_have_their_published_check_values() -> None:
    values = {"crc32": 0xCBF43926, "crc32c": 0xE3069283, "crc64nvme": 0xAE8B14860A799888}
    for algorithm, value in values.items():
        checksum = new_checksum(algorithm)
        checksum.update(b"123456789")
        assert int.from_bytes(checksum.digest(), "big") == value
