"""The command line of mpirun for both MPIs, and which MPI an mpirun belongs to."""

from __future__ import annotations

import pytest

from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.mpi.options import MPICH, OPEN_MPI, MpiOptions
from tidemill_runtime.mpi.programs import MPI, find_mpi

ONE = {"hosts": ["algo-1"], "address": "", "per_host": 2, "num_processes": 2, "reach": "/reach"}
TWO = {**ONE, "hosts": ["algo-2", "algo-1"], "num_processes": 4}


@pytest.fixture
def mpirun(tmp_path):
    """Return a function that writes an mpirun which prints a text, and returns the search path to it."""

    def write(text, *, status=0):
        program = tmp_path / "bin" / "mpirun"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{text}'\nexit {status}\n")
        program.chmod(0o755)
        return str(program.parent)

    return write


def test_mpich_on_one_instance_gets_the_number_of_ranks_and_the_users_options():
    assert MPI("/b/mpirun", MPICH).command(**ONE, options=MpiOptions(("-bind-to", "core"))) == [
        *("/b/mpirun", "-np", "2", "-bind-to", "core")
    ]


def test_open_mpi_runs_as_root_and_with_more_ranks_than_processors():
    assert MPI("/b/mpirun", OPEN_MPI).command(**ONE, options=MpiOptions()) == [
        *("/b/mpirun", "-np", "2", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
    ]


def test_a_binding_of_the_user_replaces_the_one_of_the_platform():
    command = MPI("/b/mpirun", OPEN_MPI).command(**ONE, options=MpiOptions(("--bind-to", "core")))
    assert command[command.index("--bind-to") :] == ["--bind-to", "core"]


@pytest.mark.parametrize("address", ["", "10.0.0.7"])
def test_mpich_reaches_other_instances_by_the_platforms_program(address):
    command = MPI("/b/mpirun", MPICH).command(**{**TWO, "address": address}, options=MpiOptions())
    own = ["-localhost", address] if address else []
    assert command == [
        *("/b/mpirun", "-np", "4", *own, "-launcher-exec", "/reach", "-hosts", "algo-2:2,algo-1:2"),
    ]


def test_open_mpi_reaches_other_instances_by_the_platforms_program_without_steps_in_between():
    command = MPI("/b/mpirun", OPEN_MPI).command(**TWO, options=MpiOptions())
    assert command[command.index("--host") :] == [
        *("--host", "algo-2:2,algo-1:2", "--prtemca", "plm_ssh_agent", "/reach"),
        *("--prtemca", "plm_ssh_no_tree_spawn", "1"),
    ]


@pytest.mark.parametrize(("vendor", "library"), [(MPICH, "libmpi.so.12"), (OPEN_MPI, "libmpi.so.40")])
def test_mpi4py_loads_the_library_beside_mpirun_unless_the_user_chose_one(tmp_path, vendor, library):
    mpi = MPI(str(tmp_path / "bin" / "mpirun"), vendor)
    assert mpi.variables({}) == {}, "there is none"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / library).touch()
    assert mpi.variables({}) == {"MPI4PY_LIBMPI": str(tmp_path / "lib" / library)}
    assert mpi.variables({"MPI4PY_LIBMPI": "mine"}) == {}


@pytest.mark.parametrize(
    ("text", "vendor"), [("HYDRA build details:", MPICH), ("mpirun (Open MPI) 5.0.7", OPEN_MPI)], ids=[MPICH, OPEN_MPI]
)
def test_an_mpi_is_known_by_what_its_mpirun_says(mpirun, text, vendor):
    path = mpirun(text)
    assert find_mpi(path) == MPI(f"{path}/mpirun", vendor)


def test_an_unknown_mpi_is_refused_with_its_own_words(mpirun):
    with pytest.raises(
        ConfigurationError, match=r"neither MPICH nor Open MPI \(it says 'LAM 7\.1.*put mpich or openmpi"
    ):
        find_mpi(mpirun("LAM 7.1"))


def test_a_missing_mpirun_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(
        ConfigurationError, match=r"no mpirun in the job's environment.*put mpich into requirements\.txt"
    ):
        find_mpi(str(tmp_path))


def test_an_mpirun_that_cannot_run_is_refused_with_the_reason(mpirun, tmp_path):
    path = mpirun("")
    (tmp_path / "bin" / "mpirun").write_text("#!/nowhere/sh\n")
    with pytest.raises(ConfigurationError, match=r"bin/mpirun does not run: .*No such file"):
        find_mpi(path)
