"""The native code alone: under sanitizers, fuzzed, compared with the parsers in Python, and as a wheel."""

import os
import random
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import streams
from sagemaker_tensorflow import crc32c, framing
from sagemaker_tensorflow._shared.native_build import compiling
from sagemaker_tensorflow.native_library import READER
from sagemaker_tensorflow.options import ReaderOptions

HERE = Path(__file__).parent
PACKAGE = HERE.parent
FUZZ_S = 2  # `make fuzz-pipemode` fuzzes for a minute
pytestmark = pytest.mark.xdist_group("native")  # one compilation for all of them
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g")


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program of the parsers with sanitizers."""
    compiler = compiling.find_compiler()
    assert compiler is not None, "a C++ compiler is needed for these tests"
    program = tmp_path_factory.mktemp("native") / "check_framing"
    sources = [HERE / "native" / "check_framing.cc"]
    sources += [READER.directory / name for name in ("crc32c.cc", "framing.cc", "outcome.cc")]
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
    command = [*compiler, "-std=c++17", "-O1", *warnings, *SANITIZERS, *READER.include_flags, *map(str, sources)]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def test_mutated_streams_in_any_pieces_cause_no_crash(check):
    done = subprocess.run([check, "fuzz", str(FUZZ_S), "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 10


def test_the_whole_reader_runs_clean_under_sanitizers_inside_tensorflow(tmp_path):
    compiler = compiling.find_compiler()
    library = tmp_path / "libsanitized.so"
    command = [*compiler, "-std=c++17", "-O1", "-fPIC", "-shared", *SANITIZERS, *READER.include_flags]
    subprocess.run([*command, *map(str, READER.sources), "-o", str(library)], check=True)
    runtimes = [
        subprocess.run(
            [*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0",  # the interpreter itself does not free all memory
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    (tmp_path / "root").mkdir()
    command = [sys.executable, HERE / "native" / "sanitized_reads.py", library, tmp_path / "root"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) > 40
    assert "source='sanitized'" in done.stderr


@pytest.mark.parametrize("record_format", ["RecordIO", "TFRecord", "TextLine"])
def test_native_and_python_parsers_agree_on_mutated_streams(check, record_format):
    generator = random.Random(11)
    for turn in range(60):
        stream = bytearray(
            streams.encode(record_format, [generator.randbytes(generator.randrange(40)) for _ in range(5)])
        )
        for _ in range(generator.randrange(3)):
            stream[generator.randrange(len(stream))] = generator.randrange(256)
        if turn % 3 == 0:
            del stream[generator.randrange(len(stream)) :]
        skip, strict = turn % 2, turn % 4 > 1
        if record_format != "TFRecord":
            skip = 0
        command = [check, "parse", record_format, str(skip), str(int(strict))]
        native = subprocess.run(command, input=bytes(stream), capture_output=True, check=True).stdout
        assert parsed(native) == in_python(record_format, bytes(stream), skip, strict), bytes(stream).hex()


def test_the_python_checksum_equals_the_reference():
    for size in (0, 1, 3, 4, 5, 31, 32, 33, 1000):
        data = random.Random(size).randbytes(size)
        assert crc32c.crc32c(data) == streams.crc32c(data)
    assert crc32c.crc32c(b"123456789") == 0xE3069283


def test_the_wheel_is_for_every_python_and_has_the_library(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "-py3-none-manylinux_2_17_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert f"sagemaker_tensorflow/{READER.library_name}" in names
    assert "sagemaker_tensorflow/native/framing.cc" in names


def test_the_library_needs_nothing_but_the_c_library(tmp_path):
    library = tmp_path / READER.library_name
    compiling.compile_library(READER, library)
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    assert "tensorflow" not in needed
    assert "stdc++" not in needed


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(compiling.CompileError, match=r"^`false .* failed"):
        compiling.compile_library(READER, tmp_path / "library.so")
    monkeypatch.setenv("CXX", "none")
    with pytest.raises(compiling.CompileError, match=r"there is no C\+\+ compiler"):
        compiling.compile_library(READER, tmp_path / "library.so")


def parsed(output: bytes) -> tuple[list[bytes], str]:
    records, at = [], 0
    while (size := struct.unpack_from("<Q", output, at)[0]) != 2**64 - 1:
        records.append(output[at + 8 : at + 8 + size])
        at += 8 + size
    return records, output[at + 8 :].decode()


def in_python(record_format: str, stream: bytes, skip: int, strict: bool) -> tuple[list[bytes], str]:
    options = ReaderOptions("c", record_format, "", "", max_corrupted_records=skip, strict_padding=strict)
    framer = framing.make_framer(options)
    records: list[bytes] = []
    error = ""
    try:
        for at in range(0, len(stream), 9):
            records.extend(framer.take(stream[at : at + 9]))
        records.extend(framer.finish())
    except framing.FramingError as failure:
        error = str(failure)
    return records, f"{framer.record_offset} {framer.record_number} {len(framer.warnings)} {error}"
