"""The table of flags: what each of them does, and what a wrong command line is told."""

import pytest

from tidemill_serving.flags import FLAGS, Effect, FlagError, read_flags, usage
from tidemill_serving.options import ServerOptions, read_options

BASE = "--model_base_path=/models/half"


def options(*flags: str) -> ServerOptions:
    return read_options(read_flags([BASE, *flags]).arguments(), {})


def test_the_table_has_every_flag_once_with_a_reason() -> None:
    names = [flag.name for flag in FLAGS]
    assert len(names) == len(set(names)) > 45
    assert all(flag.note for flag in FLAGS)
    assert all(f"--{name}" in usage() for name in names)


def test_without_flags_the_defaults_are_those_of_tensorflow_serving() -> None:
    made = options()
    assert (made.host, made.port, made.grpc_port) == ("0.0.0.0", None, 8500)
    assert made.limits.answer_timeout_s == 30
    assert made.managed is not None
    managed = made.managed
    assert (managed.name, managed.poll_s, managed.retries, managed.retry_s) == ("default", 1, 5, 60)
    assert (made.batching, made.cors, made.tensor_content, made.warm_ups) == (None, False, False, 1)
    assert made.profiler
    assert not options("--enable_profiler=false").profiler


def test_ports_mean_what_they_mean_there_and_zero_closes_them() -> None:
    made = options("--port=9000", "--rest_api_port=9001", "--host=127.0.0.1")
    assert (made.host, made.grpc_port, made.port) == ("127.0.0.1", 9000, 9001)
    assert options("--port=0", "--rest-api-port", "8501").grpc_port is None
    assert options("--port=00", "--rest-api-port=8501").grpc_port is None


def test_values_are_read_in_every_form_and_the_last_one_counts() -> None:
    made = options(
        *("--model_name=first", "--model_name", "half", "--enable_batching", "--rest_api_enable_cors_support=True"),
        *("--enable_model_warmup=false", "--tensorflow_session_parallelism=3", "--file_system_poll_wait_seconds=0.5"),
        "--force_allow_any_version_labels_for_unavailable_models",
    )
    assert made.managed is not None
    assert (made.managed.name, made.managed.poll_s, made.managed.labels_ahead) == ("half", 0.5, True)
    assert made.batching is not None
    assert made.cors
    assert made.warm_ups == 0
    assert (made.parallelism.inter_op, made.parallelism.intra_op) == (3, 3)


def test_a_model_config_file_takes_precedence_over_the_only_model() -> None:
    made = options("--model_name=half", "--model_config_file=/models/models.config")
    assert made.managed is not None
    assert made.managed.base_path is None
    assert str(made.managed.config_file) == "/models/models.config"


def test_flags_without_effect_are_told_with_their_values_and_reasons() -> None:
    (told,) = read_flags([BASE, "--rest_api_num_threads=16", "--port=0", "--rest_api_port=1"]).without_effect()
    assert (told[0].name, told[1]) == ("rest_api_num_threads", "16")


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--rest_api_prot=8501", "unknown argument '--rest_api_prot=8501': the nearest flag is --rest_api_port"),
        ("-port=1", "unknown argument '-port=1': the nearest flag is --port"),
        ("serve", "unknown argument 'serve'"),
        ("--port=http", "--port=http: expected integer of at least 0"),
        ("--port=-1", "--port=-1: expected integer of at least 0"),
        ("--file_system_poll_wait_seconds=nan", "--file_system_poll_wait_seconds=nan: expected number"),
        ("--enable_batching=yes", "--enable_batching=yes: expected true or false"),
        ("--model_name", "--model_name has no value: expected --model_name=default"),
        ("--rest_api_port=8500", "--port and --rest_api_port are both 8500"),
        ("--port=0", "nowhere to listen"),
        ("--model_base_path=", "nothing to serve: give --model_base_path or --model_config_file"),
    ],
)
def test_a_wrong_command_line_is_told_what_to_write(flag: str, text: str) -> None:
    with pytest.raises(FlagError) as error:
        read_flags([BASE, flag])
    assert text in str(error.value)


def test_both_kinds_of_parallelism_at_once_are_refused() -> None:
    with pytest.raises(FlagError, match="give either it or those"):
        read_flags([BASE, "--tensorflow_session_parallelism=2", "--tensorflow_intra_op_parallelism=2"])


@pytest.mark.parametrize("flag", [each for each in FLAGS if each.effect is Effect.REFUSED], ids=lambda flag: flag.name)
def test_a_refused_flag_names_its_reason_and_its_default_is_accepted(flag: object) -> None:
    name, default = flag.name, flag.default  # type: ignore[attr-defined]
    value = "true" if default == "false" else "7"
    with pytest.raises(FlagError) as error:
        read_flags([BASE, f"--{name}={value}"])
    assert str(error.value) == f"--{name}={value} cannot be honored: {flag.note}"  # type: ignore[attr-defined]
    assert read_flags([BASE, f"--{name}={default}"]).without_effect() == []
