"""Fuzz the parsers of tidemill-pipemode, guided by coverage if clang is installed.

    python run_fuzz.py SECONDS

With clang it uses libFuzzer, otherwise the tests' own program, which mutates streams without guidance (it prints
which). Both run with address and undefined-behavior sanitizers, and compare the parsers with simple ones.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parent / "src" / "sagemaker_tensorflow" / "native"
SOURCES = (HERE / "native" / "check_framing.cc", *(NATIVE / name for name in ("crc32c.cc", "framing.cc", "outcome.cc")))


def build(compiler: str, sanitizers: str, target: Path, *more: str) -> bool:
    """Compile the parsers with their fuzzer; return whether that succeeded."""
    flags = ("-std=c++17", "-O1", "-g", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", f"-I{NATIVE}", *more)
    return subprocess.run([compiler, *flags, *map(str, SOURCES), "-o", str(target)], check=False).returncode == 0


def main(seconds: int) -> int:
    """Run the fuzzer and return its exit status."""
    clang = next(
        filter(None, map(shutil.which, ("clang++", *(f"clang++-{major}" for major in range(21, 10, -1))))), None
    )
    with tempfile.TemporaryDirectory(prefix="tidemill-fuzz-") as directory:
        program = Path(directory) / "fuzzer"
        if clang and build(clang, "fuzzer,address,undefined", program, "-DTIDEMILL_LIBFUZZER"):
            print(f"libFuzzer for {seconds} s", flush=True)
            options = (
                f"-max_total_time={seconds}",
                "-max_len=4096",
                "-timeout=10",
                "-verbosity=0",
                "-print_final_stats=1",
            )
            return subprocess.run([program, *options, f"-artifact_prefix={Path.cwd()}/"], check=False).returncode
        print(f"no clang: streams are mutated without a guide, for {seconds} s", flush=True)
        if not build(os.environ.get("CXX", "c++"), "address,undefined", program):
            return 1
        return subprocess.run([program, "fuzz", str(seconds), str(os.getpid())], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
