"""Run the native transport with sanitizers.

    python run_sanitized.py SECONDS

The first part runs without TensorFlow: a program sends, receives and breaks connections from many threads (`native/`).
It runs for SECONDS with the address and undefined-behavior sanitizers, and for SECONDS with the thread sanitizer, which
does not recognize TensorFlow's own locks. The second part runs the tests of the transport inside TensorFlow, with the
first two sanitizers. Leaks are not checked, because connections live as long as the process, and the interpreter does
not free all memory. The compiler is clang, or else CXX or c++.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src/smdistributed/modelparallel/tensorflow"))

from _shared.native_build.compiling import NativeSources, compiled_libraries

HERE = Path(__file__).resolve().parent
TRANSPORT = NativeSources("smp", HERE.parent / "src/smdistributed/modelparallel/tensorflow/transport/native")
MEMORY = "address,undefined"
FRAMEWORK = "libtensorflow_framework.so.2"
OPTIONS = {
    # A message that claims 2**60 bytes is refused like every message for which there is no memory.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_segv=0",
    "TSAN_OPTIONS": "allocator_may_return_null=1:halt_on_error=1:second_deadlock_stack=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def main(seconds: int) -> int:
    """Return the exit status."""
    clang = next(
        filter(None, map(shutil.which, ("clang++", *(f"clang++-{major}" for major in range(21, 10, -1))))), None
    )
    compiler = clang or os.environ.get("CXX", "c++")
    with tempfile.TemporaryDirectory(prefix="tidemill-smp-sanitized-") as directory:
        return (
            stress(compiler, MEMORY, Path(directory) / "memory", seconds)
            or stress(compiler, "thread", Path(directory) / "threads", seconds)
            or in_tensorflow(compiler, Path(directory))
        )


def stress(compiler: str, sanitizers: str, directory: Path, seconds: int) -> int:
    """Run the transport with a small library instead of TensorFlow."""
    directory.mkdir()
    build(compiler, sanitizers, HERE / "native" / "fake_tensorflow.cc", "-shared", target=directory / FRAMEWORK)
    build(
        compiler,
        sanitizers,
        HERE / "native" / "stress_transport.cc",
        *TRANSPORT.sources,
        f"-L{directory}",
        f"-l:{FRAMEWORK}",
        f"-Wl,-rpath,{directory}",
        target=directory / "stress",
    )
    print(f"-fsanitize={sanitizers}, for {seconds} s:", end=" ", flush=True)
    command = [directory / "stress", str(seconds), str(os.getpid())]
    return subprocess.run(command, env=os.environ | OPTIONS, check=False).returncode


def in_tensorflow(compiler: str, directory: Path) -> int:
    """Run the tests of the transport with a sanitized library in place of the compiled one."""
    os.environ["TIDEMILL_NATIVE_DIR"] = str(directory / "cache")
    (library,) = compiled_libraries(TRANSPORT)
    library.parent.mkdir(parents=True)
    shared = ("-shared-libsan",) if "clang" in Path(compiler).name else ()
    build(compiler, MEMORY, *TRANSPORT.sources, "-shared", *shared, target=library)
    print(f"-fsanitize={MEMORY}, inside TensorFlow:", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not python"]
    environment = os.environ | OPTIONS | {"LD_PRELOAD": " ".join(runtimes(compiler))}
    status = subprocess.run([*command, HERE / "test_transport.py"], env=environment, check=False).returncode
    others = [path for path in (directory / "cache").rglob("*.so") if path != library]
    assert not others, f"the tests have compiled a library without sanitizers: {others}"
    return status


def build(compiler: str, sanitizers: str, *words: str | Path, target: Path) -> None:
    """Compile and link."""
    flags = ["-std=c++17", "-O1", "-g", "-fPIC", "-pthread", "-fno-omit-frame-pointer", "-Wall", "-Wextra"]
    flags += [
        f"-fsanitize={sanitizers}",
        "-fno-sanitize-recover=all",
        *TRANSPORT.include_flags,
        f"-Wl,-soname,{target.name}",
    ]
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
