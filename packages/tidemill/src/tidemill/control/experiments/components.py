"""Trial components: create, look up, list, update, delete, and associate with trials."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.experiments.experiments import add_child
from tidemill.control.experiments.lineage import delete_associations
from tidemill.control.experiments.points import delete_points
from tidemill.control.named_resources import GivenTags, NamedResources, existing, missing
from tidemill.control.resources import EXPERIMENT, TRIAL, TRIAL_COMPONENT, component_record
from tidemill.control.search.pages import filtered_page
from tidemill.core.experiments import Parent, TrialComponent
from tidemill.errors import ValidationException
from tidemill.store.records.base import Query, Record, Summary, Transaction


class TrialComponents(NamedResources):
    """The trial components of the account. Arguments are those of `NamedResources`."""

    async def create(self, request: Mapping[str, Any], *, caller: str, tags: GivenTags = ()) -> TrialComponent:
        """Create a component without trials.

        Args:
            request: The members of CreateTrialComponent without its tags; times in milliseconds since the epoch.
            caller: ARN of the caller.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The name is taken.
        """
        name = request["TrialComponentName"]
        component = TrialComponent(
            name=name,
            arn=self._arn(TRIAL_COMPONENT, name),
            members={member: value for member, value in request.items() if member != "TrialComponentName"},
            created_ms=self._clock.now_ms(),
            created_by=caller,
        )

        await self._insert(component_record(component), tags)
        return component

    async def update(self, request: Mapping[str, Any], *, caller: str) -> TrialComponent:
        """Change a component.

        Args:
            request: The members of UpdateTrialComponent; times in milliseconds since the epoch.
            caller: ARN of the caller.

        Raises:
            ResourceNotFound: There is no such component.
        """
        return await self._change(
            request["TrialComponentName"], lambda now: replace(now.updated(request), modified_by=caller)
        )

    async def delete(self, name: str) -> str:
        """Delete a component without trials, its metrics, its associations and its tags.

        Raises:
            ResourceNotFound: There is no such component.
            ValidationException: It is associated with a trial.
        """

        def check(transaction: Transaction, record: Record) -> None:
            component = TrialComponent.from_document(record.document)
            if component.parents:
                raise ValidationException(
                    f"TrialComponent {name!r} cannot be deleted: it is associated with the trial"
                    f" {component.parents[0].trial!r}; disassociate it from all trials first"
                )
            delete_points(transaction, component)
            delete_associations(transaction, component.arn)

        return await self._delete(TRIAL_COMPONENT, name, check)

    async def associate(self, name: str, trial: str) -> tuple[str, str]:
        """Associate a component with a trial; nothing changes if it is.

        Returns:
            The ARNs of component and trial.

        Raises:
            ResourceNotFound: There is no such component or trial.
        """
        return await self._records.change(lambda transaction: associate(transaction, name, trial), grows=True)

    async def disassociate(self, name: str, trial: str) -> tuple[str, str]:
        """Remove the association of a component with a trial.

        Returns:
            The ARNs of component and trial.

        Raises:
            ResourceNotFound: There is no such component or trial, or they are not associated.
        """

        def disassociate(transaction: Transaction) -> tuple[str, str]:
            record = existing(transaction, TRIAL_COMPONENT, name)
            component = TrialComponent.from_document(record.document)
            kept = tuple(parent for parent in component.parents if parent.trial != trial)
            if kept == component.parents:
                raise missing(TRIAL, trial)
            changed = component_record(replace(component, parents=kept))
            transaction.update(TRIAL_COMPONENT, name, lambda _: changed)
            return component.arn, add_child(transaction, TRIAL, trial, -1).arn

        return await self._records.change(disassociate)

    async def list(
        self, query: Query, *, experiment: str | None = None, trial: str | None = None, source: str | None = None
    ) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of components, and the token of the next page.

        Args:
            experiment: Only components of trials of this experiment.
            trial: Only components of this trial.
            source: Only components of the job with this ARN; case does not matter.

        Raises:
            ResourceNotFound: There is no such experiment or trial.
            ValidationException: The token was not issued for this listing.
        """
        for kind, name in ((EXPERIMENT, experiment), (TRIAL, trial)):
            if name is not None:
                self.record(kind, name)

        def accepts(component: Summary) -> bool:
            parents = component.summary.get("parents", ())
            arn = component.summary.get("source", {}).get("SourceArn", "")
            return (
                (experiment is None or any(parent[1] == experiment for parent in parents))
                and (trial is None or any(parent[0] == trial for parent in parents))
                and (source is None or arn.lower() == source.lower())
            )

        identity = {"experiment": experiment, "trial": trial, "source": source}
        return await filtered_page(self._records, TRIAL_COMPONENT, query, accepts=accepts, identity=identity)

    async def _change(self, name: str, change: Callable[[TrialComponent], TrialComponent]) -> TrialComponent:
        record = await self._records.update(
            TRIAL_COMPONENT,
            name,
            lambda record: component_record(change(TrialComponent.from_document(record.document))),
        )
        if record is None:
            raise missing(TRIAL_COMPONENT, name)
        return TrialComponent.from_document(record.document)


def associate(transaction: Transaction, name: str, trial: str) -> tuple[str, str]:
    """Associate a component with a trial inside a transaction; nothing changes if it is.

    Returns:
        The ARNs of component and trial.

    Raises:
        ResourceNotFound: There is no such component or trial.
    """
    component = TrialComponent.from_document(existing(transaction, TRIAL_COMPONENT, name).document)
    of_trial = existing(transaction, TRIAL, trial).document
    if not any(parent.trial == trial for parent in component.parents):
        parents = (*component.parents, Parent(trial, of_trial["members"]["ExperimentName"]))
        changed = component_record(replace(component, parents=parents))
        transaction.update(TRIAL_COMPONENT, name, lambda _: changed)
        add_child(transaction, TRIAL, trial, 1)
    return component.arn, of_trial["arn"]
