"""Experiments and trials: create, look up, list, update, delete."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.resources import ARTIFACT, EXPERIMENT, TRIAL, TRIAL_COMPONENT, tracked_record
from tidemill.control.search.pages import filtered_page
from tidemill.control.tags import check_tags, delete_tags, insert_tags
from tidemill.core.clock import Clock
from tidemill.core.experiments import Tracked
from tidemill.core.names import sagemaker_arn
from tidemill.errors import ResourceNotFound, ValidationException
from tidemill.store.records.base import Query, Record, RecordStore, Summary, Transaction

__all__ = ["Experiments", "add_child", "existing", "missing"]

_TITLES = {EXPERIMENT: "Experiment", TRIAL: "Trial", TRIAL_COMPONENT: "TrialComponent", ARTIFACT: "Artifact"}
_CHILDREN = {EXPERIMENT: "trials", TRIAL: "trial components"}

_Tags = Sequence[Mapping[str, str]]


class Experiments:
    """The experiments and trials of the account.

    Args:
        records: Stores them.
        region: Region in ARNs.
        clock: Provides the current time.
    """

    def __init__(self, records: RecordStore, *, region: str, clock: Clock) -> None:
        self._records = records
        self._region = region
        self._clock = clock

    async def create_experiment(self, request: Mapping[str, Any], *, caller: str, tags: _Tags = ()) -> Tracked:
        """Create an experiment.

        Args:
            request: The members of CreateExperiment without its tags.
            caller: ARN of the caller.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The name is taken.
        """
        return await self._create(EXPERIMENT, request, caller=caller, tags=tags)

    async def create_trial(self, request: Mapping[str, Any], *, caller: str, tags: _Tags = ()) -> Tracked:
        """Create a trial of an experiment.

        Args:
            request: The members of CreateTrial without its tags.
            caller: ARN of the caller.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The name is taken.
            ResourceNotFound: There is no such experiment.
        """
        return await self._create(TRIAL, request, caller=caller, tags=tags)

    async def update(self, kind: str, name: str, members: Mapping[str, Any], *, caller: str) -> Tracked:
        """Replace members of an experiment or a trial.

        Args:
            kind: `EXPERIMENT` or `TRIAL`.
            name: Its name.
            members: The new values, by botocore's names.
            caller: ARN of the caller.

        Raises:
            ResourceNotFound: There is no such experiment or trial.
        """

        def change(record: Record) -> Record:
            tracked = Tracked(**record.document)
            return tracked_record(kind, replace(tracked, members={**tracked.members, **members}, modified_by=caller))

        record = await self._records.update(kind, name, change)
        if record is None:
            raise missing(kind, name)
        return Tracked(**record.document)

    async def delete(self, kind: str, name: str) -> str:
        """Delete an experiment without trials, or a trial without components, and its tags.

        Args:
            kind: `EXPERIMENT` or `TRIAL`.
            name: Its name.

        Returns:
            Its ARN.

        Raises:
            ResourceNotFound: There is no such experiment or trial.
            ValidationException: It has trials or components.
        """

        def delete(transaction: Transaction) -> str:
            tracked = Tracked(**existing(transaction, kind, name).document)
            if tracked.children:
                raise ValidationException(
                    f"{_TITLES[kind]} {name!r} cannot be deleted: it has {tracked.children} {_CHILDREN[kind]};"
                    " delete or disassociate them first"
                )
            transaction.delete(kind, name)
            delete_tags(transaction, tracked.arn)
            if kind == TRIAL:
                add_child(transaction, EXPERIMENT, tracked.members["ExperimentName"], -1)
            return tracked.arn

        return await self._records.change(delete)

    def record(self, kind: str, name: str) -> Record:
        """Return the stored record of an experiment or a trial.

        Args:
            kind: `EXPERIMENT` or `TRIAL`.
            name: Its name.

        Raises:
            ResourceNotFound: There is no such experiment or trial.
        """
        record = self._records.get(kind, name)
        if record is None:
            raise missing(kind, name)
        return record

    async def list_experiments(self, query: Query) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of experiments, and the token of the next page.

        Args:
            query: Order, bounds, size and position of the page.

        Raises:
            ValidationException: The token was not issued for this listing.
        """
        return await filtered_page(self._records, EXPERIMENT, query, accepts=lambda _: True, identity={})

    async def list_trials(
        self, query: Query, *, experiment: str | None = None, component: str | None = None
    ) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of trials, and the token of the next page.

        Args:
            query: Order, bounds, size and position of the page.
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

    async def _create(self, kind: str, request: Mapping[str, Any], *, caller: str, tags: _Tags) -> Tracked:
        checked_tags = check_tags(tags)
        naming = f"{_TITLES[kind]}Name"
        name = request[naming]
        tracked = Tracked(
            name=name,
            arn=sagemaker_arn(kind, name, region=self._region),
            members={member: value for member, value in request.items() if member != naming},
            created_ms=self._clock.now_ms(),
            created_by=caller,
        )

        def insert(transaction: Transaction) -> None:
            refuse_taken(transaction, kind, name, tracked.arn)
            if kind == TRIAL:
                add_child(transaction, EXPERIMENT, request["ExperimentName"], 1)
            transaction.insert(tracked_record(kind, tracked))
            insert_tags(transaction, tracked.arn, checked_tags, at_ms=tracked.created_ms)

        await self._records.change(insert, grows=True)
        return tracked


def missing(kind: str, name: str) -> ResourceNotFound:
    """Return the error for a name without an experiment, trial, trial component or artifact.

    Args:
        kind: Kind of the record.
        name: The name.
    """
    return ResourceNotFound(f"{_TITLES[kind]} {name!r} does not exist.")


def existing(transaction: Transaction, kind: str, name: str) -> Record:
    """Return a record inside a transaction.

    Args:
        transaction: The transaction.
        kind: Kind of the record.
        name: Its name.

    Raises:
        ResourceNotFound: There is no such record.
    """
    record = transaction.get(kind, name)
    if record is None:
        raise missing(kind, name)
    return record


def refuse_taken(transaction: Transaction, kind: str, name: str, arn: str) -> None:
    """Refuse a name that an experiment, trial or trial component has.

    Args:
        transaction: The transaction.
        kind: Kind of the record.
        name: The name.
        arn: ARN for the message.

    Raises:
        ValidationException: The name is taken. AWS's SDKs look for "already exists", and then load what there is.
    """
    if transaction.get(kind, name) is not None:
        raise ValidationException(f"{_TITLES[kind]} with name {name!r} already exists: {arn}; choose another name")


def add_child(transaction: Transaction, kind: str, name: str, count: int) -> Tracked:
    """Count a new or removed trial of an experiment, or component of a trial.

    Args:
        transaction: The transaction.
        kind: `EXPERIMENT` or `TRIAL`.
        name: Its name.
        count: 1, or -1 for a removed one.

    Returns:
        The experiment or trial.

    Raises:
        ResourceNotFound: There is no such experiment or trial.
    """

    def change(record: Record) -> Record:
        tracked = Tracked(**record.document)
        return tracked_record(kind, replace(tracked, children=tracked.children + count))

    record = transaction.update(kind, name, change)
    if record is None:
        raise missing(kind, name)
    return Tracked(**record.document)
