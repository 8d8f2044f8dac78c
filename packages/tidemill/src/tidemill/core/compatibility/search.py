"""Rows of Search and its suggestions."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Rows, honored

_FILTER: Rows = {
    "Name": Honored(
        "a property of the description; `Metrics.NAME`, `HyperParameters.NAME`, `Parameters.NAME`, `Tags.KEY`"
    ),
    "Operator": Honored("Equals if there is a Value, else Exists"),
    "Value": Honored("compared as a number or a time if both are one; texts are equal as they are"),
}


def _filters(at: str) -> Rows:
    return {at: Honored(), **{f"{at}[].{name}": row for name, row in _FILTER.items()}}


OPERATIONS: Mapping[str, Rows] = {
    "Search": {
        "Resource": Honored(
            "training and tuning jobs, endpoints, pipelines and their executions, model packages and groups,"
            " experiments, trials and trial components. Nothing is found of kinds that cannot exist here, e.g."
            " FeatureGroup; others are refused"
        ),
        "SearchExpression": Honored(),
        **_filters("SearchExpression.Filters"),
        **honored("SearchExpression.NestedFilters", "SearchExpression.NestedFilters[].NestedPropertyName"),
        **_filters("SearchExpression.NestedFilters[].Filters"),
        "SearchExpression.SubExpressions": Honored("at most 20 deep"),
        "SearchExpression.Operator": Honored("And if it is not given"),
        "SortBy": Honored("any property; LastModifiedTime if it is not given"),
        "SortOrder": Honored("Descending if it is not given"),
        "NextToken": Honored(),
        "MaxResults": Honored("100 if it is not given"),
        "CrossAccountFilterOption": Honored("there is one account: CrossAccount finds nothing"),
        "VisibilityConditions": Recorded("results are what the caller may describe"),
    },
    "GetSearchSuggestions": {
        **honored("Resource", "SuggestionQuery", "SuggestionQuery.PropertyNameQuery"),
        "SuggestionQuery.PropertyNameQuery.PropertyNameHint": Honored("beginning of a property's name"),
    },
}
