"""GetCallerIdentity: every key may call it."""


def test_the_user_is_an_assumed_role_of_the_account(sts):
    reply = sts.get_caller_identity()
    assert reply["Account"] == "000000000000"
    assert reply["UserId"] == "AKIATIDEMILLTESTS000"
    assert reply["Arn"] == "arn:aws:sts::000000000000:assumed-role/SageMakerRole/user"


def test_keys_without_rights_may_call_get_caller_identity(restricted):
    reply = restricted("sts").get_caller_identity()
    assert reply["UserId"] == "ASIATIDEMILLTESTS000"
    assert reply["Arn"].endswith("assumed-role/SageMakerRole/SageMaker")


def test_other_operations_are_unknown(sts, refusal):
    status, code, message = refusal(sts.get_session_token)
    assert (status, code) == (400, "UnknownOperationException")
    assert "GetSessionToken" in message
