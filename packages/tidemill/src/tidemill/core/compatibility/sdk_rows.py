"""What the rows of the arguments of `tidemill.sdk` share."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Row, Sent, honored

Argument = Row | Sent
Arguments = Mapping[str, Argument]


def sent(operation: str, arguments: Mapping[str, str]) -> Arguments:
    return {name: Sent(member, operation) for name, member in arguments.items()}


SESSION: Arguments = {"sagemaker_session": Honored("None finds the service, and starts this user's own if need be")}
CODE = honored("source_dir", "dependencies")
GIT: Arguments = {"git_config": Honored("cloned when the object is created; AWS's SDK clones at each `fit`")}
