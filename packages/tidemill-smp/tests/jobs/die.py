"""A script whose ranks end in different ways."""

import os
import signal
import sys
import time


def wait() -> None:
    print("process", os.getpid(), flush=True)
    time.sleep(600)


def init_and_exit() -> None:
    import smdistributed.modelparallel.tensorflow as smp

    smp.init({"partitions": int(os.environ.get("SMP_SIZE") or os.environ["OMPI_COMM_WORLD_SIZE"])})
    if smp.rank() == 1:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            sys.exit(3)
        raise ValueError(how)
    smp.barrier()


how = sys.argv[1]
if how == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how in ("deaf", "wait"):
    wait()
else:
    init_and_exit()
