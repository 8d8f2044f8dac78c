"""How the ranks of a job find each other, prove that they belong together, and connect.

1. `environment` says which rank this process is, and which secret the job has.
2. `meeting` exchanges between all ranks who they are and where they listen: through rank 0 (`store`), or through
   what the caller has, e.g. a communicator of MPI (`mpi_library` starts the right MPI). Then it connects them.
3. Both ends of each connection prove that they have the secret (`handshake`, `connections`).
"""
