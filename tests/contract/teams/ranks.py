"""A training script of several processes: says who it is, and fails where it is told to."""

import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--fail_at", type=int, default=-1)
parser.add_argument("--name", type=str)
args = parser.parse_args()

rank = size = 0
if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.allreduce(1)
print(f"RANK {rank} of {size} on {os.environ['SM_CURRENT_HOST']} for {args.name}", flush=True)
if rank == args.fail_at:
    raise ValueError(f"rank {rank} has no data")
if size:
    MPI.COMM_WORLD.barrier()
