"""Run the native collectives with sanitizers.

    python run_sanitized.py SECONDS

First without TensorFlow: a program whose threads are ranks (`native/stress_engine.cc`) runs for SECONDS with the
address and undefined-behavior sanitizers, and for SECONDS with the thread sanitizer, which does not know TensorFlow's
own locks. The thread sanitizer identifies memory by its address, so it does not compare accesses of two ranks to their
shared memory, which each rank maps separately. Then every call runs under mpirun, inside TensorFlow, with the first two
sanitizers. Leaks are checked without TensorFlow only, because the interpreter does not free all memory. Uses clang, or
else the compiler in CXX or c++.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src/horovod/tensorflow"))

from _shared.native_build.compiling import NativeSources, compiled_libraries

HERE = Path(__file__).resolve().parent
COLLECTIVES = NativeSources("horovod", HERE.parent / "src/horovod/tensorflow/native")
MEMORY = "address,undefined"
OPTIONS = {
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
INSIDE = {"ASAN_OPTIONS": "detect_leaks=0:handle_segv=0"}


def main(seconds: int) -> int:
    """Return the exit status."""
    clang = next(
        filter(None, map(shutil.which, ("clang++", *(f"clang++-{major}" for major in range(21, 10, -1))))), None
    )
    compiler = clang or os.environ.get("CXX", "c++")
    with tempfile.TemporaryDirectory(prefix="tidemill-horovod-sanitized-") as directory:
        return (
            stress(compiler, MEMORY, Path(directory) / "memory", seconds)
            or stress(compiler, "thread", Path(directory) / "threads", seconds)
            or in_tensorflow(compiler, Path(directory))
        )


def stress(compiler: str, sanitizers: str, program: Path, seconds: int) -> int:
    """Run the engines of several ranks in one process."""
    sources = [path for path in COLLECTIVES.sources if path.name != "ops.cc"]
    build(compiler, sanitizers, HERE / "native" / "stress_engine.cc", *sources, target=program)
    print(f"-fsanitize={sanitizers}, for {seconds} s:", end=" ", flush=True)
    return subprocess.run([program, str(seconds)], env=os.environ | OPTIONS, check=False).returncode


def in_tensorflow(compiler: str, directory: Path) -> int:
    """Run tests of real ranks with a sanitized library in place of the compiled one."""
    os.environ["TIDEMILL_NATIVE_DIR"] = str(directory / "cache")
    (library,) = compiled_libraries(COLLECTIVES)
    library.parent.mkdir(parents=True)
    shared = ("-shared-libsan",) if "clang" in Path(compiler).name else ()
    build(compiler, MEMORY, *COLLECTIVES.sources, "-shared", *shared, target=library)
    print(f"-fsanitize={MEMORY}, inside TensorFlow:", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "test_features.py"]
    environment = os.environ | OPTIONS | INSIDE | {"LD_PRELOAD": " ".join(runtimes(compiler))}
    status = subprocess.run(command, env=environment, check=False).returncode
    others = [path for path in (directory / "cache").rglob("libtidemill_horovod*.so") if path != library]
    assert not others, f"the tests have compiled a library without sanitizers: {others}"
    return status


def build(compiler: str, sanitizers: str, *words: str | Path, target: Path) -> None:
    """Compile and link."""
    flags = ["-std=c++17", "-O1", "-g", "-fPIC", "-pthread", "-fno-omit-frame-pointer", "-Wall", "-Wextra"]
    flags += [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", *COLLECTIVES.include_flags]
    if "clang" in Path(compiler).name:
        # TensorFlow's functions are looked up by name, and its callback is called through its known layout.
        flags.append("-fno-sanitize=function")
    subprocess.run([compiler, *flags, *map(str, words), "-o", str(target), "-ldl"], check=True)


def runtimes(compiler: str) -> list[str]:
    """Return the libraries of the sanitizers, which a process must load before all others."""
    names = ["libclang_rt.asan-x86_64.so"] if "clang" in Path(compiler).name else ["libasan.so", "libubsan.so"]
    return [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in names
    ]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
