"""Roles that the owner has created, with their policies. The settings win over them.

Any name is a role, created or not; a created role shows what was sent, and its inline policies limit the keys of its
jobs. Policies that AWS manages have no documents here: they are kept and shown, and a role with these alone has the
built-in policy.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tidemill.core.clock import Clock
from tidemill.core.documents import members_of, parsed
from tidemill.core.policy import IamPolicy
from tidemill.core.policy_document import read_policy
from tidemill.errors import AwsError
from tidemill.store.records.base import Query, Record, RecordStore, Transaction

_ROLE = "role"  # named by its name in lower case, since case does not matter


@dataclass(frozen=True, slots=True, kw_only=True)
class IamRole:
    """One role.

    Attributes:
        name: As it was created.
        trust: JSON of AssumeRolePolicyDocument, which has no effect.
        description: Of CreateRole.
        session_s: MaxSessionDuration in seconds.
        created_ms: Milliseconds since the epoch.
        policies: Documents of its inline policies by name, as they were sent.
        attached: ARNs of the policies that are attached to it.
    """

    name: str
    trust: str
    description: str = ""
    session_s: int = 3600
    created_ms: int = 0
    policies: Mapping[str, str] = field(default_factory=dict)
    attached: tuple[str, ...] = ()

    @property
    def policy(self) -> IamPolicy | None:
        """What its inline policies allow and deny together; None without one."""
        if not self.policies:
            return None
        read = [read_policy(json.loads(text)) for text in self.policies.values()]
        keeps = any(policy.keeps_published for policy in read)
        return IamPolicy(tuple(each for policy in read for each in policy.statements), keeps_published=keeps)

    @classmethod
    def of(cls, record: Record) -> "IamRole":
        """Return the role of a record."""
        return parsed(cls, record.document)


class IamRoles:
    """Creates, changes and finds roles."""

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._known: dict[str, tuple[int, IamPolicy | None]] = {}

    def find(self, name: str) -> IamRole | None:
        """Return a role that was created, or None.

        Args:
            name: Its name; case does not matter.
        """
        record = self._records.get(_ROLE, name.casefold())
        return None if record is None else IamRole.of(record)

    def policy_of(self, name: str) -> IamPolicy | None:
        """Return the inline policies of a role together; None without one. Read again only after a change.

        Args:
            name: Name of the role; case does not matter.
        """
        key = name.casefold()
        generation = self._records.generation(_ROLE, key)
        known = self._known.get(key)
        if known is not None and known[0] == generation:
            return known[1]
        role = self.find(name)
        policy = role.policy if role is not None else None
        if generation is not None:
            self._known[key] = generation, policy
        return policy

    async def page(self, *, after: str | None, limit: int) -> tuple[list[IamRole], str | None]:
        """Return a page of the roles, sorted by name, and the token of the next page.

        Args:
            after: Token of an earlier page.
            limit: Most roles.

        Raises:
            ValueError: ``after`` is not a token of this method.
        """
        page = await self._records.list(_ROLE, Query(sort_by="name", descending=False, limit=limit, after=after))
        return [IamRole.of(record) for record in page.records], page.next_token

    async def create(self, role: IamRole) -> IamRole:
        """Create a role; the result has its time.

        Raises:
            AwsError: EntityAlreadyExists.
        """
        created = replace(role, created_ms=self._clock.now_ms())

        def work(transaction: Transaction) -> None:
            if transaction.get(_ROLE, role.name.casefold()) is not None:
                raise AwsError(f"Role with name {role.name} already exists.", code="EntityAlreadyExists")
            transaction.insert(_record(created))

        await self._records.change(work, grows=True)
        return created

    async def change(self, name: str, change: Callable[[IamRole], IamRole]) -> None:
        """Change a role; requests see it from the next one on.

        Raises:
            AwsError: NoSuchEntity, or raised by ``change``.
        """

        def work(transaction: Transaction) -> None:
            role = _existing(transaction, name)
            transaction.delete(_ROLE, name.casefold())
            transaction.insert(_record(change(role)))

        await self._records.change(work, grows=True)

    async def delete(self, name: str) -> None:
        """Delete a role that has no policies.

        Raises:
            AwsError: NoSuchEntity; DeleteConflict, it has policies.
        """

        def work(transaction: Transaction) -> None:
            role = _existing(transaction, name)
            held = (*role.policies, *role.attached)
            if held:
                raise AwsError(
                    f"Cannot delete role {name}: it has policies ({', '.join(held)}); delete or detach them first",
                    code="DeleteConflict",
                )
            transaction.delete(_ROLE, name.casefold())

        await self._records.change(work)


def _existing(transaction: Transaction, name: str) -> IamRole:
    record = transaction.get(_ROLE, name.casefold())
    if record is None:
        raise AwsError(f"The role with name {name} cannot be found.", code="NoSuchEntity")
    return IamRole.of(record)


def _record(role: IamRole) -> Record:
    return Record(
        kind=_ROLE,
        name=role.name.casefold(),
        created_ms=role.created_ms,
        modified_ms=role.created_ms,
        document=members_of(role),
    )
