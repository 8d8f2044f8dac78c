"""Operations that are for the owner of the service alone, whatever a policy allows."""

from tidemill.errors import AwsError
from tidemill.wire.exchange import Context


def check_owner(context: Context, owner: str) -> None:
    """Refuse everybody but the owner of the service, and sessions of browsers.

    Args:
        context: The request.
        owner: Access key id of the owner.

    Raises:
        AwsError: AccessDeniedException.
    """
    if context.of_page or context.caller.access_key_id != owner:
        raise AwsError(
            f"{context.operation} is for the owner of the service, who signs with the key in its state directory: the"
            " command line does.",
            code="AccessDeniedException",
        )
