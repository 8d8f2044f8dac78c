"""Secrets among hyperparameters reach the script, but neither the log nor the failure report."""

import json

import pytest

from tidemill_runtime.masking import MASK, is_secret_name, masked, masked_arguments

SECRETS = [
    *("password", "db_password", "DB-PASSWD", "pwd", "passphrase", "secret", "client_secret_value", "mySecret"),
    *("token", "hf_token", "HF_TOKEN", "accessToken", "api_key", "apiKey", "APIKey", "apikey", "wandb.api-key"),
    *("aws_secret_access_key", "access_key", "private_key", "ssh_key_file", "credential", "gcp_credentials"),
]
OTHERS = [
    *("epochs", "learning_rate", "max_tokens", "token_dim", "tokenizer", "num_tokens", "key", "primary_key", "keys"),
    *("secretary", "passwords_seen", "monkey", "author", "", "_", "k", "api", "feature_key", "accesses"),
]


@pytest.mark.parametrize("name", SECRETS)
def test_names_of_secrets_are_recognized(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_are_not_secrets(name):
    assert not is_secret_name(name)


def test_values_are_masked_by_name_at_every_depth():
    values = {"lr": 0.1, "token": None, "db": {"host": "h", "password": "p"}, "many": [{"api_key": 1}, "x"]}
    assert masked(values) == {
        "lr": 0.1,
        "token": MASK,
        "db": {"host": "h", "password": MASK},
        "many": [{"api_key": MASK}, "x"],
    }
    assert values["db"]["password"] == "p"


def test_the_word_after_an_option_with_a_secret_name_is_masked():
    line = ["run", "--token", "--abc", "--lr", "0.1", "--api-key=x=y", "password", "plain", "--secret"]
    assert masked_arguments(line) == (
        *("run", "--token", MASK, "--lr", "0.1", f"--api-key={MASK}", "password", "plain", "--secret"),
    )


def test_a_secret_reaches_the_script_and_neither_the_log_nor_the_failure(job):
    job.script(
        "import json, os, sys\n"
        "received = [sys.argv[1:], os.environ['SM_HP_API_KEY'], json.loads(os.environ['SM_HPS'])['db']['password']]\n"
        "open(os.environ['SM_OUTPUT_DATA_DIR'] + '/received', 'w').write(json.dumps(received))\n"
        "sys.exit('it failed')"
    )
    job.hyperparameters(api_key='"sk-hidden"', db=json.dumps({"host": "h", "password": "pw-hidden"}), epochs="3")
    result = job.run()
    received = json.loads((job.base / "output/data/received").read_text())
    arguments = ["--api_key", "sk-hidden", "--db", "host=h,password=pw-hidden", "--epochs", "3"]
    assert received == [arguments, "sk-hidden", "pw-hidden"]
    shown = f"--api_key '{MASK}' --db 'host=h,password={MASK}' --epochs 3"
    assert job.failure.splitlines()[-1] == f'Command "{job.python} -- train.py {shown}"'
    assert b'"--epochs", "3"' in result.stderr
    assert b"hidden" not in result.stdout + result.stderr + job.failure.encode()


def test_a_secret_of_a_container_entry_point_is_masked(job):
    job.config("hyperparameters", {})
    result = job.run("--", "/bin/sh", "-c", "exit 3", "--token", "hidden")
    assert result.returncode == 1
    assert b"hidden" not in result.stderr + job.failure.encode()
    assert "ExitCode 3" in job.failure
