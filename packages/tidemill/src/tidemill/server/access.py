"""Who may do what: the owner, the keys of jobs and users, roles, policies of buckets, KMS keys."""

from dataclasses import dataclass

from tidemill.control.bucket_rules import BucketRules
from tidemill.control.credentials import Credentials
from tidemill.control.denials import Denials
from tidemill.control.iam_roles import IamRoles
from tidemill.control.kms_keys import KmsKeys
from tidemill.core.names import ACCOUNT_ID
from tidemill.core.roles import Roles
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.wire.signing.credentials import Credential


@dataclass(frozen=True, slots=True)
class Access:
    """What decides about requests.

    Attributes:
        owner: The owner's keys.
        denials: Keeps what was denied to the keys of jobs.
        roles: Policies by role name.
        iam_roles: The roles that the owner has created.
        kms: The KMS keys of the account.
        rules: Policies and encryption of buckets.
    """

    owner: Credential
    credentials: Credentials
    denials: Denials
    roles: Roles
    iam_roles: IamRoles
    kms: KmsKeys
    rules: BucketRules

    @classmethod
    def of(cls, start: Startup, stores: Stores) -> "Access":
        """Return the access that the settings and the records grant."""
        settings, keys = start.settings, start.keys
        records, clock = stores.records, stores.clock
        owner = Credential(
            keys.access_key_id,
            keys.secret_access_key,
            # AWS's SDKs parse the role for jobs from this ARN.
            arn=f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/SageMakerRole/user",
            unrestricted=True,
        )
        kms = KmsKeys(records, region=settings.region, clock=clock)
        encrypts = settings.encryption == "record"
        iam_roles = IamRoles(records, clock=clock)
        roles = Roles(settings.roles, stored=iam_roles.policy_of)
        return cls(
            owner,
            Credentials(owner, records, clock=clock, roles=roles),
            Denials(records, clock=clock),
            roles,
            iam_roles,
            kms,
            BucketRules(records, stores.objects, kms, clock=clock, encrypts=encrypts),
        )
