"""Run the native reader and writer of JSON with sanitizers.

    python run_sanitized.py

Their tests, which create and damage bodies at random, run with a library that contains the address and undefined-
behavior sanitizers. Each Python object gets its own allocation, so that reading one byte too many is detected. Leaks
are not checked, because the interpreter does not free all memory. Uses the compiler in CXX, else c++.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = ("test_batches.py", "test_both_readers.py", "test_reading.py", "test_numbers.py")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "PYTHONMALLOC": "malloc",
}


def main() -> int:
    """Run the tests and return the exit status."""
    compiler = os.environ.get("CXX", "c++")
    with tempfile.TemporaryDirectory(prefix="tidemill-json-sanitized-") as directory:
        os.environ["TIDEMILL_NATIVE_DIR"] = directory
        from tidemill_serving._shared.native_build.compiling import compiled_libraries
        from tidemill_serving.rest.native_library import JSON_LIBRARY

        (library,) = compiled_libraries(JSON_LIBRARY)
        library.parent.mkdir(parents=True)
        shared = ("-shared-libsan",) if "clang" in compiler else ()
        flags = ("-std=c++17", "-O1", "-g", "-fPIC", "-shared", *SANITIZERS, *shared, *JSON_LIBRARY.include_flags)
        subprocess.run([compiler, *flags, *map(str, JSON_LIBRARY.sources), "-o", str(library)], check=True)
        environment = os.environ | ENVIRONMENT | {"LD_PRELOAD": " ".join(runtimes(compiler))}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        tests = [str(HERE / "rest" / name) for name in TESTS]
        status = subprocess.run([*command, *tests], env=environment, check=False).returncode
        others = [path for path in Path(directory).rglob("*.so") if path != library]
        assert not others, f"the tests have compiled a library without sanitizers: {others}"
        return status


def runtimes(compiler: str) -> list[str]:
    """Return the libraries of the sanitizers, which a process must load before all others."""
    names = ["libclang_rt.asan-x86_64.so"] if "clang" in compiler else ["libasan.so", "libubsan.so"]
    return [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in names
    ]


if __name__ == "__main__":
    sys.exit(main())
