"""SECURITY.md promises exactly what tests show: each promise lists its tests here."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tidemill.core.policy_document import read_policy
from tidemill.core.roles import BUILT_IN, check_role_names

ROOT = Path(__file__).parents[3]
STACK = "packages/tidemill/tests"
STRANGERS = "tests/page/test_strangers.py"
SERVING = "packages/tidemill-serving/tests"

PROMISES = {
    "It listens on loopback only, unless you give it another address. Without a TLS certificate for that address, or"
    " the setting `allow_plain_http`, it does not start; nor with a `tls_key` that others than its owner and its group"
    " may read, or that others than its owner may write.": [
        f"{STACK}/server/test_public_address.py::test_a_key_that_others_may_read_is_refused_with_what_to_do",
        f"{STACK}/server/test_public_address.py::test_a_host_that_others_could_reach_needs_tls",
        f"{STACK}/server/test_public_address.py::test_plain_http_for_other_machines_must_be_allowed_explicitly",
        f"{STACK}/server/test_public_address.py::test_old_versions_of_tls_are_refused",
        f"{STACK}/server/test_run.py::test_a_public_address_is_refused_before_anything_is_created",
    ],
    "Other users get separate keys. Only you can create, list and revoke them. A revoked key is refused at once.": [
        f"{STACK}/services/test_iam.py::test_a_user_signs_with_a_key_until_the_owner_deletes_it",
        f"{STACK}/services/test_iam.py::test_a_user_manages_no_keys",
    ],
    "Only you create roles and change their policies; a role in the settings has the policy of the settings.": [
        f"{STACK}/services/test_iam_roles.py::*",
    ],
    "A user's policy limits all of its keys. Temporary keys (STS) have no right that the key lacks with which they were"
    " requested, cannot manage users, and end with that key.": [
        f"{STACK}/services/test_iam.py::test_a_policy_limits_all_keys_of_a_user_and_lists_show_what_it_allows",
        f"{STACK}/services/test_sts.py::*",
    ],
    "It answers requests that are signed with one of its keys, and refuses all others. There are two exceptions:"
    " `GET /healthz` returns the version, the isolation mode and whether scripts start warm, and"
    " `GET /v2/credentials/...` returns the keys of a job to those who know its secret path."
    " Below `/_tidemill/`, a session of the page or a token for metrics takes the place of the signature.": [
        f"{STACK}/wire/test_container_credentials.py::*",
        f"{STACK}/wire/test_hostile.py::test_a_bad_request_is_refused",
        f"{STACK}/wire/test_sigv4.py::*",
        "tests/contract/test_security.py::test_a_request_that_is_not_signed_gets_nothing_but_the_health_of_the_service",
        "tests/contract/test_monitoring.py::test_only_a_token_that_is_valid_now_reads_the_metrics",
    ],
    "Nobody keeps others out by idle connections. Connections without a signed request so far: at most 64 per user "
    "of the machine, per address for other machines, for longer than 5 seconds; at most three quarters of all "
    "connections. Beyond that the oldest idle ones are closed. A TLS handshake has 5 seconds. Connections through a "
    "standby service, or from a job in mode `full`, count as those of the user who runs it. If the kernel cannot "
    "tell the owners of connections (`sock_diag`), all users of the machine share one limit.": [
        f"{STACK}/server/test_room.py::*",
    ],
    "Web pages in your browser cannot use it: requests with a foreign Host or Origin are refused. The exception are"
    " forms for uploads to S3, from any Origin: a form is accepted only with a policy that the owner of a key has"
    " signed, and uploads what the policy allows.": [
        f"{STACK}/wire/test_hostile.py::test_a_bad_request_is_refused",
        f"{STACK}/wire/test_hostile.py::test_the_health_check_is_answered_to_no_web_page",
        f"{STACK}/services/s3/test_forms.py::*",
    ],
    "The page below `/_tidemill/` does what the key of its session may do, and nothing without a session. A session"
    " begins by a token that works once, for five minutes, and that only the owner of a key gets, by a signed request;"
    " keys of jobs get none. Its requests need two secrets, a cookie and a header; one of them alone is nothing. It"
    " ends after a week, after twelve hours without a request, with its key, by `tidemill open --revoke`, and without"
    " TLS when the service ends: another program could listen on its port then, and what that gets is worth nothing"
    " when the service runs again. It makes no keys and no further sessions. The service"
    " stores digests of its secrets only, and they are in no log and no list of processes.": [
        f"{STACK}/control/test_page_sessions.py::*",
        f"{STRANGERS}::test_half_of_a_session_is_nothing",
        f"{STRANGERS}::test_a_token_begins_one_session_even_if_two_use_it_at_once",
        f"{STRANGERS}::test_a_session_makes_no_keys_and_no_further_session",
        f"{STRANGERS}::test_a_session_may_do_what_the_policy_of_its_key_allows",
        f"{STRANGERS}::test_no_file_of_the_service_has_the_secrets_of_a_session",
        "tests/page/test_port.py::*",
        f"{STRANGERS}::test_revoking_ends_all_sessions_of_a_key",
        f"{STRANGERS}::test_the_address_of_tidemill_open_is_in_no_list_of_processes",
    ],
    "A web page of another origin, other ports of this machine included, and a host that is rebound to this machine get"
    " nothing of the page, and cannot show it in a frame.": [
        f"{STRANGERS}::test_other_origins_and_hosts_are_refused_before_the_session_is_looked_at",
        f"{STRANGERS}::test_a_page_of_another_origin_gets_nothing",
        f"{STRANGERS}::test_a_rebinding_host_gets_nothing",
    ],
    "No object of S3, and no answer of an endpoint, runs as a page of the service's origin. Names, logs and metrics"
    " never become markup in the page; its policy allows no inline code.": [
        f"{STRANGERS}::test_answers_cannot_be_framed_sniffed_or_run",
        f"{STRANGERS}::test_an_object_never_runs_as_a_page_of_the_service",
        f"{STRANGERS}::test_the_policy_of_the_page_stops_markup_and_scripts_if_a_fault_lets_them_in",
    ],
    "A read-only session changes nothing; the service decides that, by permissions.": [
        f"{STRANGERS}::test_a_read_only_session_changes_nothing",
        f"{STACK}/control/test_page_sessions.py::test_the_policy_of_read_only_sessions_has_no_verb_that_changes_something",
    ],
    "The page looks into archives of users by a process with limits of time and memory. It unpacks nothing and follows"
    " no link: what an archive expands to, or names, reaches neither files of the machine nor the service.": [
        f"{STACK}/control/test_archives.py::*",
    ],
    "From other machines the page is reached by HTTPS only. Its sign-in form neither sends nor stores the secret of a"
    " key.": [
        "tests/page/test_sign_in.py::*",
    ],
    "The proxy of `tidemill env --sts` exists only after that command, listens on loopback, and forwards only for"
    " shells with a token of that command. Jobs do not get the token, not even from a service that such a shell starts;"
    " jobs in isolation mode `full` do not reach the proxy. Requests to AWS's host names are verified by the service"
    " like all others. Only such shells trust the authority that signs for these names; its key is in the state"
    " directory. Without the proxy, requests for AWS's hosts are refused as foreign.": [
        "tests/contract/test_aws_hosts.py::*",
        "tests/e2e/test_isolation.py::test_no_job_in_a_network_of_its_own_reaches_the_proxy_of_a_shell",
        f"{STACK}/server/test_aws_proxy.py::*",
        f"{STACK}/wire/test_hostile.py::test_a_bad_request_is_refused",
    ],
    "Only you can read its keys and its state directory.": [
        f"{STACK}/server/test_run.py::test_everything_the_service_writes_is_private",
        f"{STACK}/server/test_keys.py::test_keys_are_created_once_in_a_private_file",
        f"{STACK}/server/test_keys.py::test_a_keys_file_that_others_may_read_is_refused",
        f"{STACK}/server/test_state.py::test_a_directory_that_was_opened_to_others_is_refused",
    ],
    "The socket `files.sock` in the state directory accepts from your own processes, and from no other user, "
    "descriptors of regular files that are open for reading and on a local disk: one per connection, 64 connections "
    "at once, for at most 60 seconds after the copy. It accepts no path. The service copies the file, so later "
    "writes to the file do not change the object. The copy becomes an object only by a signed PutObject that the "
    "policy of its key allows, once, while the connection is open; else the copy is removed. In isolation modes "
    "`full` and `mount` a job does not see the socket.": [
        f"{STACK}/services/s3/test_handed_files.py::*",
        f"{STACK}/executors/test_sandbox.py::test_the_state_directory_and_the_users_keys_are_out_of_sight",
    ],
    "In isolation modes `full` and `mount` a job cannot read the service's keys, its database, other jobs' files,"
    " `~/.aws` or `~/.ssh`.": [
        f"{STACK}/executors/test_sandbox.py::test_the_state_directory_and_the_users_keys_are_out_of_sight",
        f"{STACK}/executors/test_sandbox.py::test_a_job_cannot_read_another_job",
        "tests/contract/test_bad_inputs.py::test_a_job_sees_its_own_keys_and_nothing_of_the_service",
    ],
    "In these modes a job does not see these files either, unless the setting `readable_paths` names them: the"
    " user's home directory (`~/.config`, `~/.netrc`, `~/.kube`, `~/.docker` and all else); the state directories"
    " of this user's other services that share its environments; files that credential variables such as"
    " `AWS_SHARED_CREDENTIALS_FILE` name to the service, and its `tls_key`; and the machine's passwords and keys"
    " (`/etc/shadow`, `/etc/ssh/*_key` and others, listed in `tidemill/sandbox/private_files.py`).": [
        f"{STACK}/executors/test_sandbox.py::test_the_state_directory_and_the_users_keys_are_out_of_sight",
        f"{STACK}/executors/test_private_files.py"
        "::test_a_job_reads_no_credentials_and_no_other_services_files_except_what_a_setting_names",
        f"{STACK}/executors/test_private_files.py::test_secrets_of_the_machine_are_hidden_by_class",
        f"{STACK}/executors/test_private_files.py::test_the_settings_name_what_to_hide_and_never_show_the_state_directory",
    ],
    "Jobs with the training compiler share its decisions (which variant of a step is faster, no code) only with jobs"
    " of the same role.": [
        "tests/e2e/test_training_compiler.py::test_the_next_job_of_the_role_starts_with_the_decision"
    ],
    "Packages that jobs share are installed by the service before any code of a job runs, from the names in a"
    " `requirements.txt` and the service's settings. What a job brings for its packages (indexes, files, variables of"
    " pip) is installed for that job only. No exit status and no file that a job makes causes an installation.": [
        f"{STACK}/executors/test_requirements.py::*",
        f"{STACK}/executors/test_local.py::test_what_a_job_brings_for_its_packages_stays_with_the_job",
        f"{STACK}/executors/test_local.py"
        "::test_neither_an_exit_status_nor_a_file_of_a_script_makes_packages_be_installed",
        "packages/tidemill-runtime/tests/test_requirements.py::test_variables_of_the_job_do_not_run_code_in_the_runtime",
        "tests/e2e/test_packages.py::test_a_job_with_an_index_of_its_own_puts_no_package_into_other_jobs",
    ],
    "What a job installs with pip or uv stays in that job. In isolation modes `full` and `mount` it cannot change"
    " shared packages.": [
        "tests/e2e/test_packages.py::test_scripts_install_packages_for_themselves_and_no_other_job_sees_them"
    ],
    "In isolation mode `full` a job reaches its own instances and the service, and nothing else: no other port of the"
    " machine's loopback, no other job, no other network. With EnableNetworkIsolation it does not reach the service"
    " either. Other jobs and other programs of the machine cannot reach the job.": [
        f"{STACK}/executors/test_network.py::test_one_instance_reaches_the_service_and_nothing_else",
        f"{STACK}/executors/test_network.py::test_two_instances_talk_by_name_over_a_fixed_port_and_another_job_cannot",
        f"{STACK}/executors/test_network.py"
        "::test_a_closed_network_leads_to_no_service_and_packages_are_not_installed_from_outside",
    ],
    "A job's own keys are temporary and end with it.": [
        "tests/contract/test_roles.py::test_keys_of_a_job_end_with_it",
        f"{STACK}/wire/test_hostile.py::test_a_temporary_key_needs_its_own_living_token",
    ],
    "A job's keys may do what the policy of its role allows, and nothing else. Deny overrides Allow, and operations"
    " that are not mapped to IAM actions are denied.": [
        "tests/contract/test_roles.py::test_a_role_of_the_settings_replaces_the_built_in_policy",
        "tests/contract/test_roles.py::test_a_policy_of_a_later_start_applies_to_jobs_that_run",
        "tests/contract/test_roles.py::test_a_job_of_an_earlier_version_is_taken_over_with_the_rights_of_this_one",
        f"{STACK}/core/test_policy.py::test_denying_wins_in_every_order_of_statements",
        f"{STACK}/services/authorization/test_needs.py::test_every_routed_operation_is_mapped",
        f"{STACK}/services/authorization/test_needs.py"
        "::test_an_operation_without_a_mapping_is_denied_to_keys_of_jobs_under_every_policy",
    ],
    "A condition whose value is not known makes no statement allow and every statement deny. A policy is refused when"
    " it is given if a condition key that the service does not know would lose a Deny or give rights.": [
        f"{STACK}/core/test_conditions.py::test_what_is_not_known_never_allows_and_never_keeps_from_denying",
        f"{STACK}/core/test_conditions.py"
        "::test_a_variable_whose_value_is_not_known_never_allows_and_never_keeps_from_denying",
        f"{STACK}/core/test_conditions.py"
        "::test_a_key_that_is_not_known_is_refused_by_name_where_it_would_lose_a_deny_or_give_rights",
        f"{STACK}/services/authorization/test_conditions.py"
        "::test_a_policy_with_a_key_that_is_not_known_is_refused_when_it_is_put",
    ],
    "What a policy says of passing or assuming a role holds for the role that takes effect, in any case, path or"
    " account that a request writes its ARN. A Deny that fits either of the two ARNs denies; a role that was given a"
    " policy needs an Allow for both.": [
        f"{STACK}/services/authorization/test_conditions.py"
        "::test_a_policy_about_a_role_holds_however_the_request_writes_its_arn",
    ],
    "A user is subject to its own policy, and to a bucket's Deny that names it, also in sessions of roles that it"
    " assumes. So is a session to what limits the session that opened it. What a bucket allows a role is not allowed to"
    " users who assume it and lack the right.": [
        f"{STACK}/services/authorization/test_conditions.py"
        "::test_what_a_bucket_allows_a_role_goes_beyond_its_policy_and_not_beyond_who_assumes_it",
        f"{STACK}/services/authorization/test_conditions.py"
        "::test_a_session_within_a_session_stays_subject_to_what_limits_the_first",
        f"{STACK}/services/authorization/test_conditions.py"
        "::test_a_user_stays_subject_to_its_own_policy_in_every_session",
    ],
    "With the built-in policy, a job's keys may read every bucket, write and delete in buckets whose names contain"
    " `sagemaker` and below the output, `model_dir` and checkpoint prefixes of the job's request (of a processing job:"
    " its outputs), create such buckets, describe the job, read its log and track runs of experiments, and nothing"
    " else.": [
        f"{STACK}/core/test_roles.py::test_a_processing_job_owns_each_of_its_outputs_and_nothing_beside_them",
        "tests/contract/test_experiments.py::test_runs_and_the_registry",
        "tests/contract/test_roles.py::test_a_job_does_its_own_work_and_nothing_to_others",
        "tests/contract/test_roles.py::test_a_path_is_compared_literally_even_if_it_looks_relative",
        f"{STACK}/core/test_roles.py::test_a_job_writes_below_its_own_prefixes_and_nowhere_else",
        f"{STACK}/core/test_roles.py::test_a_job_writes_in_buckets_with_sagemaker_in_their_names",
    ],
    "With the built-in policy, a job's keys neither replace, delete nor tag what another job published below its own"
    " prefixes, nor `tidemill-inputs` of others, except below prefixes that both requests name.": [
        f"{STACK}/services/s3/test_publications.py::*",
    ],
    "The policy of a bucket limits every request of S3, also with keys of the owner and of users, who can always"
    " replace it. It adds rights only to the roles, users and sessions that it names.": [
        f"{STACK}/core/test_bucket_policy.py::*",
        f"{STACK}/services/s3/test_bucket_rules.py::test_a_policy_demands_encryption_of_every_write_by_every_caller",
        f"{STACK}/services/s3/test_bucket_rules.py::test_a_policy_against_everything_leaves_itself_to_the_owner",
        f"{STACK}/services/s3/test_bucket_rules.py::test_allow_adds_rights_to_the_role_that_it_names",
    ],
    "Presigned URLs made with a job's keys have the rights of these keys.": [
        "tests/contract/test_roles.py::test_a_job_does_its_own_work_and_nothing_to_others"
    ],
    "The keys of endpoints and transform jobs act as the ExecutionRoleArn of their model, may do what its policy"
    " allows, and end with the instance or job. Models without a role get no keys.": [
        "tests/e2e/test_server_keys.py::*",
        f"{STACK}/control/test_credentials.py::test_servers_without_a_role_or_with_keys_of_their_own_get_none",
        f"{STACK}/control/test_endpoints.py::test_a_failed_deletion_is_retried",
        f"{STACK}/control/test_endpoints.py"
        "::test_an_instance_that_dies_is_replaced_and_if_all_do_in_a_row_the_endpoint_has_failed",
        f"{STACK}/executors/test_endpoint.py::test_the_server_of_an_endpoint_gets_no_keys_of_the_services_own",
    ],
    "A step of a pipeline has the rights of the key that started the execution, or those of the pipeline's role if that"
    " was given a policy (by the settings or by IAM); it passes the checks of a client's request. If that key is"
    " deleted, the next step fails.": [
        f"{STACK}/services/test_sagemaker_pipelines.py::test_the_policy_that_a_role_was_given_limits_the_steps",
        f"{STACK}/services/test_sagemaker_pipelines.py::test_the_steps_of_a_key_end_with_the_key",
        f"{STACK}/services/test_sagemaker_pipelines.py"
        "::test_a_request_that_a_client_may_not_send_fails_its_step_with_the_same_error",
    ],
    "Training data is read over a network only from the S3 endpoints that the setting `remote_s3` names.": [
        f"{STACK}/control/test_remote_channels.py::test_a_bucket_without_a_setting_is_never_requested",
        "tests/e2e/test_remote_data.py::test_a_missing_bucket_fails_the_job_before_the_script_starts",
    ],
    "The credentials of these endpoints stay in the service and the shim: no file holds them, and a job in mode"
    " `full` or `mount` cannot read them.": [
        f"{STACK}/executors/test_remote_channels.py::test_nothing_secret_is_written_and_nothing_is_given_to_the_script",
        f"{STACK}/executors/test_sandbox.py::test_processes_of_the_machine_are_out_of_sight",
    ],
    "Object keys, names in archives and channel names never lead to a path outside their directory.": [
        "tests/contract/test_bad_inputs.py::test_object_keys_that_leave_the_channel_fail_the_job_and_write_nothing",
        "packages/tidemill-runtime/tests/test_archive.py::test_no_archive_writes_outside_its_destination",
        f"{STACK}/executors/test_local.py::test_a_channel_named_like_a_directory_link_fails_the_job",
        f"{STACK}/executors/test_local.py::test_a_hostile_key_fails_the_job_and_names_the_object",
    ],
    "What a job leaves behind, however deeply nested, keeps the service neither from starting nor from cleaning up"
    " after other jobs. Files that cannot be removed are reported in the service's log, and tried again later.": [
        f"{STACK}/test_trees.py::test_a_deep_tree_is_walked_in_both_orders_and_removed",
        f"{STACK}/control/test_sweep.py"
        "::test_what_one_job_left_keeps_the_service_neither_from_starting_nor_from_cleaning_up_others",
        f"{STACK}/executors/test_local.py::test_what_cannot_be_removed_is_reported_and_removed_later",
        "tests/contract/test_checkpoints.py"
        "::test_a_job_that_leaves_1500_nested_directories_completes_without_paths_that_s3_does_not_allow",
    ],
    "Hyperparameters never become code on their way to the script.": [
        "tests/contract/test_bad_inputs.py::test_hostile_hyperparameters_arrive_as_they_are"
    ],
    "Metrics are read only with a token that the owner has made and not revoked; it opens nothing else, and only its"
    " hash is stored. Labels are names of operations that exist, and of endpoints; no other request adds one.": [
        "tests/contract/test_monitoring.py::test_only_a_token_that_is_valid_now_reads_the_metrics",
        "tests/contract/test_monitoring.py::test_tokens_are_for_the_owner_alone",
        "tests/contract/test_monitoring.py::test_metrics_follow_requests_and_jobs",
    ],
    "The service posts state changes only to the addresses in its owner's settings: no request, job or user names one,"
    " and redirects are not followed. Each request is signed with a secret that neither the log nor a command shows.": [
        "tests/faults/test_webhooks.py::*",
        f"{STACK}/control/test_webhooks.py::test_a_webhook_that_cannot_work_is_refused",
        f"{STACK}/cli/test_config.py::test_the_error_of_a_setting_shows_no_secret_beside_it",
    ],
    "What changes is told, and what instances use and write for TensorBoard is shown, only to those who may describe"
    " the job or endpoint; event files in S3 only to those who may also read these objects. The files of users are read"
    " in a process of limited time and memory.": [
        f"{STACK}/services/test_changes.py::*",
        f"{STACK}/services/test_scalars.py::*",
    ],
    "Log lines cannot forge events of the service, and `tidemill logs` removes terminal control sequences unless"
    " `--raw` is given. No message of the command line or of the SDK's exceptions contains them.": [
        f"{STACK}/cli/test_text.py::test_the_message_of_an_error_holds_no_control_characters",
        f"{STACK}/server/test_events.py::test_a_value_cannot_forge_a_line_or_drive_a_terminal",
        f"{STACK}/cli/test_text.py::test_escape_sequences_and_controls_are_removed",
    ],
    "The agent of a model server on another machine serves only its service, by TLS 1.3: the service accepts only the"
    " certificate that the agent reported, and proves itself by a secret of the instance.": [
        f"{STACK}/control/test_invoker.py::"
        "test_a_relay_serves_nobody_without_the_secret_and_is_believed_only_with_its_certificate",
    ],
    "The model server alone (`python -m tidemill_serving`, `tensorflow_model_server`) has no users: everyone who"
    " reaches its port may call every model. gRPC with `client_verify` in `--ssl_config_file` admits only clients"
    " with a certificate of your authority; its unix sockets admit only the user who started it. A TLS handshake has"
    " 5 seconds and counts as a connection. The key is never in the log. Clients that send wrong frames, do not"
    " read, or hold streams open are limited (`docs/how-to/serve-grpc-and-changing-models.md`); reflection shows"
    " definitions of messages only, and health whether a model is loaded.": [
        f"{SERVING}/grpc_api/test_tls_and_sockets.py::test_mutual_tls_on_the_port_and_the_socket",
        f"{SERVING}/grpc_api/test_tls_and_sockets.py::test_a_wrong_configuration_of_tls_is_told_without_the_key",
        f"{SERVING}/grpc_api/test_connection_limits.py::*",
        f"{SERVING}/grpc_api/test_hostile_calls.py::*",
        f"{SERVING}/grpc_api/test_reflection.py::test_the_definitions_are_those_of_tensorflow_serving",
    ],
}


def promises() -> list[str]:
    """Return the list below the heading of the promises, one text per entry."""
    section = (ROOT / "SECURITY.md").read_text().split("## What the service promises")[1].split("\n## ")[0]
    return [" ".join(entry.split()) for entry in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]


def test_every_promise_has_its_tests_and_every_test_its_promise() -> None:
    assert promises() == list(PROMISES)


@pytest.mark.parametrize("test", sorted({test for tests in PROMISES.values() for test in tests}))
def test_the_test_of_a_promise_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    defined = {node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)}
    assert any(each.startswith("test_") for each in defined) if name == "*" else name in defined


def documented() -> dict[str, object]:
    """Return the roles in the settings of the how-to page."""
    text = (ROOT / "docs/how-to/limit-what-a-job-may-do.md").read_text()
    return tomllib.loads("\n".join(re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)))["roles"]


def test_the_policies_of_the_how_to_are_accepted_and_show_the_built_in_one() -> None:
    read = check_role_names({name: read_policy(document) for name, document in documented().items()})
    assert sorted(read) == ["Trainer", "Tuner"]
    assert read["Tuner"] == BUILT_IN
