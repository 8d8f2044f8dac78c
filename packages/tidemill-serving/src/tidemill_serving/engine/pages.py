"""Release memory that is needed only while a shared library or a model is loaded.

The dynamic linker and the library's initializers touch about 260 MB of TensorFlow's 750 MB, most of which is never used
again. Since they are unmodified pages of a file, the kernel can drop them and reload one on access with a page fault of
about a microsecond.
"""

import ctypes
import re
import sys
from pathlib import Path

_SMAPS = Path("/proc/self/smaps")
_DONT_NEED = 4  # MADV_DONTNEED of Linux
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \S+ +(.+)")
_OWN_PAGES = re.compile(r"(?:Anonymous|Swap): +(\d+) kB")


def release_file_pages(library: Path) -> int:
    """Release the pages of a library that are unmodified copies of its file.

    Skipped are writable mappings and mappings that contain a private page of this process, such as relocated data,
    which is read-only too.

    Args:
        library: A library that is loaded.

    Returns:
        Size of the released mappings in bytes; 0 on systems other than Linux or if the kernel does not report the
        content of mappings.
    """
    if not sys.platform.startswith("linux"):
        return 0
    try:
        ranges = _unchanged(_SMAPS.read_text(), str(library.resolve()))
    except OSError:
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(end - begin for begin, end in ranges if madvise(begin, end - begin, _DONT_NEED) == 0)


def release_free_memory() -> None:
    """Return memory that was freed, and that the C library keeps for later, to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # a function of glibc
    if trim is not None:
        trim(0)


def _unchanged(smaps: str, library: str) -> list[tuple[int, int]]:
    """Return begin and end of the read-only mappings of a file that contain no private page of the process."""
    found: list[tuple[int, int]] = []
    own_kb: list[int] = []
    is_candidate = False
    for line in smaps.splitlines():
        if mapping := _MAPPING.fullmatch(line):
            begin, end, permissions, path = mapping.groups()
            is_candidate = path == library and permissions in ("r--p", "r-xp")
            if is_candidate:
                found.append((int(begin, 16), int(end, 16)))
                own_kb.append(0)
        elif is_candidate and (own := _OWN_PAGES.match(line)):
            own_kb[-1] += int(own[1])
    return [range_ for range_, kb in zip(found, own_kb, strict=True) if not kb]
