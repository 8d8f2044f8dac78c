"""The batch script of an allocation, and the file that brings the assignments of its instances to the nodes.

The script starts one task per node, which waits for the file (`tidemill.node.slurm`). Neither the script nor the
arguments or the environment of a process contain a secret.
"""

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence

_SCRIPT = """\
#!/bin/sh
# One agent of tidemill per node. An agent runs its instance, and ends with it.
HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
PATH=${{PATH:-/usr/local/bin:/usr/bin:/bin}}
export HOME PATH
{prolog}
directory=${{TIDEMILL_NODE_DIR:-$HOME/.local/share/tidemill-node}}
mkdir -p -m 700 "$directory" || exit
log=$directory/slurm-$SLURM_JOB_ID.log
trap '' TERM
srun --export=ALL --ntasks-per-node=1 --cpu-bind=none --mpi=none --input=none --kill-on-bad-exit=0 --wait=0 \\
    {python} -I -m tidemill.node.slurm {bundle} >"$log" 2>&1
status=$?
[ "$status" -ne 0 ] || [ -s "$log" ] || rm -f "$log"
exit "$status"
"""
_DIGEST_BYTES = 32


def bundle_path(nonce: str) -> str:
    """Return the path on the nodes of the file with the assignments."""
    return f"/tmp/tidemill-{nonce}"  # noqa: S108 - unpredictable, not replaced if it exists, and its owner is checked


def script(*, python: str, prolog: Sequence[str], nonce: str) -> str:
    """Return a batch script.

    Args:
        python: Path on the nodes of the Python with tidemill.
        prolog: Lines of shell that run first, on the first node; the agents get the variables that the lines export.
        nonce: See `bundle_path`.
    """
    return _SCRIPT.format(prolog="\n".join(prolog), python=shlex.quote(python), bundle=shlex.quote(bundle_path(nonce)))


def pack(assignments: Mapping[int, bytes]) -> bytes:
    """Return the content of the file: a digest, so that a reader knows that it is complete, and the assignments.

    Args:
        assignments: The serialized assignment of each instance, by the instance's index.
    """
    value = {str(index): base64.b64encode(each).decode() for index, each in assignments.items()}
    content = json.dumps(value).encode()
    return hashlib.sha256(content).digest() + content


def unpack(data: bytes) -> dict[int, bytes] | None:
    """Return the assignments by index; None if the file is incomplete.

    Args:
        data: What has been written of the output of `pack`.
    """
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        return None
    return {int(index): base64.b64decode(each) for index, each in json.loads(content).items()}
