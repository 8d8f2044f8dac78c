"""Ranks return the memory of freed tensors to the system, unless the user or another allocator prevents it."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ranks

BLOCKS, BLOCK_BYTES = 64, 4 << 20


class Info(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


def blocks_that_are_mapped() -> int:
    """Return how many of several 4 MiB blocks are mapped separately, after a larger block was freed."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallinfo2.restype = Info
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    libc.free(libc.malloc(31 << 20))  # from now on, glibc by default allocates smaller blocks from a heap
    before = libc.mallinfo2().hblks
    blocks = [libc.malloc(BLOCK_BYTES) for _ in range(BLOCKS)]
    mapped = libc.mallinfo2().hblks - before
    for block in blocks:
        libc.free(block)
    return mapped


def test_large_blocks_of_a_rank_are_mapped_and_go_back_when_they_are_freed() -> None:
    for mapped in ranks.run(2, blocks_that_are_mapped):
        assert mapped > BLOCKS // 2  # the first blocks fit into memory that the imports freed


def test_a_rank_keeps_its_memory_if_the_user_says_so() -> None:
    assert ranks.run(1, blocks_that_are_mapped, environment={"SMP_RETURN_MEMORY": "0"}) == [0]


def blocks_mapped_by_a_process(**variables: str) -> int:
    """Return `blocks_that_are_mapped` of a new process, since glibc reads these variables as it is loaded."""
    code = (
        "from smdistributed.modelparallel.tensorflow.allocator import return_freed_memory\n"
        "from test_allocator import blocks_that_are_mapped\n"
        "return_freed_memory()\n"
        "print(blocks_that_are_mapped())"
    )
    path = {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | path | variables, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.parametrize(
    ("name", "value"),
    [("MALLOC_MMAP_THRESHOLD_", str(30 << 20)), ("GLIBC_TUNABLES", f"glibc.malloc.mmap_threshold={30 << 20}")],
)
def test_settings_of_the_user_are_kept(name: str, value: str) -> None:
    assert blocks_mapped_by_a_process(**{name: value}) == 0


def test_a_limit_on_the_number_of_heaps_does_not_disable_the_thresholds() -> None:
    variables = {"MALLOC_ARENA_MAX": "2", "GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}
    assert blocks_mapped_by_a_process(**variables) > BLOCKS // 2


def environment_of_ranks(**variables: str) -> list[str]:
    """Return GLIBC_TUNABLES of two ranks of the launcher; `-` if unset."""
    code = "import os; print(os.environ.get('GLIBC_TUNABLES', '-'))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    job = [sys.executable, "-m", "smdistributed.modelparallel.tensorflow.run", "-n", "2", "-c", code]
    done = subprocess.run(job, env=environment | variables, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.split()


OURS = "glibc.malloc.mmap_threshold=1048576:glibc.malloc.trim_threshold=16777216"


def test_the_launcher_sets_the_thresholds_of_its_ranks_before_they_start() -> None:
    assert environment_of_ranks() == [f"{OURS}:glibc.malloc.hugetlb=1"] * 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}, f"glibc.malloc.arena_max=2:{OURS}:glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, f"glibc.malloc.hugetlb=0:{OURS}"),
        ({"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4096"}, "glibc.malloc.mmap_threshold=4096"),
        ({"GLIBC_TUNABLES": "glibc.malloc.top_pad=4096"}, "glibc.malloc.top_pad=4096"),
        ({"MALLOC_MMAP_THRESHOLD_": "65536"}, "-"),
        ({"MALLOC_TRIM_THRESHOLD_": "65536"}, "-"),
        ({"SMP_RETURN_MEMORY": "0"}, "-"),
        ({"MALLOC_ARENA_MAX": "2"}, f"{OURS}:glibc.malloc.hugetlb=1"),
    ],
    ids=str,
)
def test_the_launcher_keeps_the_users_settings(given: dict[str, str], expected: str) -> None:
    assert environment_of_ranks(**given) == [expected] * 2


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler to make an allocator of its own")
def test_another_allocator_is_not_configured(tmp_path: Path) -> None:
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text(
        "#include <stddef.h>\n"
        "extern void *__libc_malloc(size_t);\n"
        "void *malloc(size_t size) { return __libc_malloc(size); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    code = "from smdistributed.modelparallel.tensorflow.allocator import return_freed_memory as f; print(f())"
    for preload, expected in (("", "True"), (str(library), "False")):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env={"LD_PRELOAD": preload}, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [expected]
