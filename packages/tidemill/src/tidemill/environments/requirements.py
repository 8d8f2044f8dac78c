"""Which requirements may be installed once for all jobs, and which belong to one job.

Packages that a job chooses only by name come from the indexes of the service's settings, so their installation is the
same for every job. Everything else in a requirements.txt can lead to files or servers of that job.
"""

import re
from dataclasses import dataclass

_COMMENT = re.compile(r"(^|\s+)#.*$")
_NAMED = re.compile(
    r"""(?xa)
    [A-Z0-9] [A-Z0-9._-]* \s*                                        # name
    (\[ [A-Z0-9._,\s-]* \] \s*)?                                     # extras
    (\(? \s* [<>=!~] [A-Z0-9.*+!<>=~,\s_-]* \)? \s*)?                # versions
    (; [A-Z0-9_\s.<>=!~'"()*+,-]* )?                                 # marker
    (\s --hash=[a-z0-9]+:[0-9a-f]+ \s*)*
    """,
    re.IGNORECASE,
)
_OPTION = re.compile(r"(?a)--(pre|prefer-binary|require-hashes|(only|no)-binary[= ][A-Za-z0-9:][A-Za-z0-9._,:-]*)")
_ARCHIVE = re.compile(r"\.(whl|egg|zip|tar|tgz|gz|bz2|xz|lzma|tbz|txz|tlz)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Requirements:
    """The content of a requirements.txt.

    Attributes:
        lines: The requirements, one a line, without comments and line continuations.
        own: Why they may be installed for one job only; empty if they may be installed for all jobs.
    """

    lines: tuple[str, ...]
    own: str

    @classmethod
    def parse(cls, text: bytes) -> "Requirements":
        """Parse the content of a requirements.txt.

        Args:
            text: Content of the file; a byte order mark is ignored.

        Returns:
            The lines, and the reason why the packages are no named packages, if so.
        """
        try:
            decoded = text.decode("utf-8-sig")
        except UnicodeDecodeError:
            return cls((), "it is not UTF-8 text")
        lines = tuple(line for line in map(_without_comment, _joined(decoded)) if line)
        for line in lines:
            is_named = _NAMED.fullmatch(line) and not _ARCHIVE.search(line)
            if not is_named and not _OPTION.fullmatch(line):
                return cls(lines, f"{line[:100]!r} is not a package of the service's index")
        return cls(lines, "")

    @property
    def text(self) -> str:
        """The lines as a file."""
        return "".join(f"{line}\n" for line in self.lines)


def _joined(text: str) -> list[str]:
    """Return the lines of a text; a line that ends with a backslash continues on the next one, except a comment."""
    joined = [""]
    for line in text.splitlines():
        continues = line.endswith("\\") and not _COMMENT.match(line)
        joined[-1] += line.rstrip("\\") if continues else line
        if not continues:
            joined.append("")
    return joined


def _without_comment(line: str) -> str:
    return " ".join(_COMMENT.sub("", line).split())
