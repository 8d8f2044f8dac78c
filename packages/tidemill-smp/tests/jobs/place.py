"""A script that prints its ranks; it runs under any launcher, and without one."""

import argparse

import smdistributed.modelparallel.tensorflow as smp

parser = argparse.ArgumentParser()
parser.add_argument("--partitions", type=int, required=True)
smp.init({"partitions": parser.parse_args().partitions})
gathered = smp.allgather(smp.rank(), smp.WORLD)
print(f"place {smp.rank()}/{smp.size()} mp {smp.mp_rank()} dp {smp.dp_rank()} gathered {gathered}", flush=True)
