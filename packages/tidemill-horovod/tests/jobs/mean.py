"""Start Horovod, and print the mean of the ranks."""

import os
import sys

import tensorflow as tf

import horovod.tensorflow as hvd

comm = None
if "--communicator" in sys.argv:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
try:
    hvd.init(comm)
except RuntimeError as error:
    os.write(2, f"refused: {error}\n".encode())  # in one write, because MPICH's mpirun mixes the lines of ranks
    sys.exit(3)
mean = float(hvd.allreduce(tf.constant(float(hvd.rank()))))
os.write(1, f"rank {hvd.rank()} of {hvd.size()}: mean {mean:g}\n".encode())
