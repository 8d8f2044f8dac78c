"""Experiments and trials: create, look up, list, update, delete."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.experiments.lineage import delete_associations
from tidemill.control.named_resources import GivenTags, NamedResources, missing
from tidemill.control.resources import EXPERIMENT, TITLES, TRIAL, TRIAL_COMPONENT, record_of
from tidemill.control.search.pages import filtered_page
from tidemill.core.experiments import Tracked
from tidemill.errors import ValidationException
from tidemill.store.records.base import Query, Record, Summary, Transaction

_CHILDREN = {EXPERIMENT: "trials", TRIAL: "trial components"}


class Experiments(NamedResources):
    """The experiments and trials of the account. Arguments are those of `NamedResources`."""

    async def create(self, kind: str, request: Mapping[str, Any], *, caller: str, tags: GivenTags = ()) -> Tracked:
        """Create an experiment, or a trial of an experiment.

        Args:
            kind: `EXPERIMENT` or `TRIAL`.
            request: The members of CreateExperiment or CreateTrial without its tags.
            caller: ARN of the caller.

        Raises:
            ValidationException: The name is taken.
            ResourceNotFound: There is no such experiment.
        """
        naming = f"{TITLES[kind]}Name"
        name = request[naming]
        tracked = Tracked(
            name=name,
            arn=self._arn(kind, name),
            members={member: value for member, value in request.items() if member != naming},
            created_ms=self._clock.now_ms(),
            created_by=caller,
        )

        def count(transaction: Transaction) -> None:
            if kind == TRIAL:
                add_child(transaction, EXPERIMENT, request["ExperimentName"], 1)

        await self._insert(record_of(kind, tracked), tags, also=count)
        return tracked

    async def update(self, kind: str, name: str, members: Mapping[str, Any], *, caller: str) -> Tracked:
        """Replace members of an experiment or a trial.

        Args:
            kind: `EXPERIMENT` or `TRIAL`.
            members: The new values, by botocore's names.
            caller: ARN of the caller.

        Raises:
            ResourceNotFound: There is no such experiment or trial.
        """

        def change(record: Record) -> Record:
            tracked = Tracked.from_document(record.document)
            return record_of(kind, replace(tracked, members={**tracked.members, **members}, modified_by=caller))

        record = await self._records.update(kind, name, change)
        if record is None:
            raise missing(kind, name)
        return Tracked.from_document(record.document)

    async def delete(self, kind: str, name: str) -> str:
        """Delete an experiment without trials, or a trial without components, its associations and its tags.

        Args:
            kind: `EXPERIMENT` or `TRIAL`.

        Raises:
            ResourceNotFound: There is no such experiment or trial.
            ValidationException: It has trials or components.
        """

        def check(transaction: Transaction, record: Record) -> None:
            tracked = Tracked.from_document(record.document)
            if tracked.children:
                raise ValidationException(
                    f"{TITLES[kind]} {name!r} cannot be deleted: it has {tracked.children} {_CHILDREN[kind]};"
                    " delete or disassociate them first"
                )
            delete_associations(transaction, tracked.arn)
            if kind == TRIAL:
                add_child(transaction, EXPERIMENT, tracked.members["ExperimentName"], -1)

        return await self._delete(kind, name, check)

    async def list_experiments(self, query: Query) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of experiments, and the token of the next page.

        Raises:
            ValidationException: The token was not issued for this listing.
        """
        return await filtered_page(self._records, EXPERIMENT, query, accepts=lambda _: True, identity={})

    async def list_trials(
        self, query: Query, *, experiment: str | None = None, component: str | None = None
    ) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of trials, and the token of the next page.

        Args:
            experiment: Only trials of this experiment.
            component: Only trials with which this trial component is associated.

        Raises:
            ResourceNotFound: There is no such experiment or component.
            ValidationException: The token was not issued for this listing.
        """
        if experiment is not None:
            self.record(EXPERIMENT, experiment)
        of_component = None
        if component is not None:
            of_component = {trial for trial, _ in self.record(TRIAL_COMPONENT, component).document["parents"]}

        def accepts(trial: Summary) -> bool:
            return (experiment is None or trial.summary.get("shown", {}).get("ExperimentName") == experiment) and (
                of_component is None or trial.name in of_component
            )

        identity = {"experiment": experiment, "component": component}
        return await filtered_page(self._records, TRIAL, query, accepts=accepts, identity=identity)


def add_child(transaction: Transaction, kind: str, name: str, count: int) -> Tracked:
    """Count a new or removed trial of an experiment, or component of a trial.

    Args:
        kind: `EXPERIMENT` or `TRIAL`.
        count: 1, or -1 for a removed one.

    Raises:
        ResourceNotFound: There is no such experiment or trial.
    """

    def change(record: Record) -> Record:
        tracked = Tracked.from_document(record.document)
        return record_of(kind, replace(tracked, children=tracked.children + count))

    record = transaction.update(kind, name, change)
    if record is None:
        raise missing(kind, name)
    return Tracked.from_document(record.document)
