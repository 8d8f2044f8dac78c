"""Reduce until a rank dies or stops; print the error of the others, and when it comes."""

import os
import signal
import sys
import time

import tensorflow as tf

import horovod.tensorflow as hvd

how, when = sys.argv[1:3]
if "--tcp" in sys.argv:
    os.environ["HOROVOD_TIDEMILL_TRANSPORT"] = "tcp"
hvd.init()
rank, size = hvd.rank(), hvd.size()
victim = int(sys.argv[3])
large = tf.ones([64 << 20] if when == "during" else [10])
print(f"process {os.getpid()} is rank {rank}", flush=True)
hvd.allreduce(large)
began = time.monotonic()
try:
    for step in range(1000):
        if rank == victim and step == 2:
            number = {"dies": signal.SIGKILL, "hangs": signal.SIGSTOP}[how]
            if when == "during":
                os.system(f"(sleep 0.05; kill -{int(number)} {os.getpid()}) &")
            elif how == "hangs":
                time.sleep(1e6)
            else:
                os.kill(os.getpid(), number)
        hvd.allreduce(large, name=f"step {step}")
except hvd.HorovodInternalError as error:
    print(f"lost on {rank} after {time.monotonic() - began:.1f} s: {error}", flush=True)
    os._exit(3)
