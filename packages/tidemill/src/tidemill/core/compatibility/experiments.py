"""Rows of experiments, trials, trial components and their metrics."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import TAGS, Honored, Recorded, Rows, honored, same

_SHOWN = Recorded("described as it was given")
_EXPERIMENT: Rows = {"ExperimentName": Honored()}
_TRIAL: Rows = {"TrialName": Honored()}
_COMPONENT: Rows = {"TrialComponentName": Honored()}
_DISPLAY: Rows = {"DisplayName": Honored("the name if it is not given")}
_LIST: Rows = honored("CreatedAfter", "CreatedBefore", "SortBy", "SortOrder", "NextToken", "MaxResults")


def _artifacts(member: str) -> Rows:
    return {
        member: Honored(),
        **honored(f"{member}{{}}.MediaType", f"{member}{{}}.Value"),
    }


_ARTIFACT: Rows = {"ArtifactArn": Honored()}
_PLACE: Rows = {
    "Source": Honored("there is one artifact for each Source; DeleteArtifact accepts it in place of the ARN"),
    "Source.SourceUri": Honored(),
    "Source.SourceTypes": Honored("in any order"),
    **honored("Source.SourceTypes[].SourceIdType", "Source.SourceTypes[].Value"),
}
_METADATA: Rows = {
    **same(_SHOWN, "MetadataProperties", "MetadataProperties.CommitId", "MetadataProperties.Repository"),
    **same(_SHOWN, "MetadataProperties.GeneratedBy", "MetadataProperties.ProjectId"),
}
_ENDS: Rows = {"SourceArn": Honored(), "DestinationArn": Honored()}

_MEMBERS: Rows = {
    **_COMPONENT,
    **_DISPLAY,
    **honored("Status", "Status.PrimaryStatus", "Status.Message", "StartTime", "EndTime", "Parameters"),
    **honored("Parameters{}.StringValue", "Parameters{}.NumberValue"),
    **_artifacts("InputArtifacts"),
    **_artifacts("OutputArtifacts"),
}

EXPERIMENT_CONFIG: Rows = {
    "ExperimentConfig": Honored("makes a trial component of the job, which has its parameters, artifacts and metrics"),
    "ExperimentConfig.ExperimentName": Honored("must exist; without a TrialName, a trial is made for the job"),
    "ExperimentConfig.TrialName": Honored("must exist"),
    "ExperimentConfig.TrialComponentDisplayName": Honored(),
    "ExperimentConfig.RunName": Honored("name of the run's trial component, which gets the job as a source"),
}
"""Of requests that create jobs."""

OPERATIONS: Mapping[str, Rows] = {
    "CreateExperiment": {**_EXPERIMENT, **_DISPLAY, "Description": Honored(), **TAGS},
    "DescribeExperiment": _EXPERIMENT,
    "ListExperiments": _LIST,
    "UpdateExperiment": {**_EXPERIMENT, **_DISPLAY, "Description": Honored()},
    "DeleteExperiment": {"ExperimentName": Honored("an experiment with trials is kept")},
    "CreateTrial": {**_TRIAL, **_DISPLAY, **_EXPERIMENT, "MetadataProperties": _SHOWN, **TAGS},
    "DescribeTrial": _TRIAL,
    "ListTrials": {**_LIST, **_EXPERIMENT, **_COMPONENT},
    "UpdateTrial": {**_TRIAL, **_DISPLAY},
    "DeleteTrial": {"TrialName": Honored("a trial with components is kept")},
    "CreateTrialComponent": {**_MEMBERS, "MetadataProperties": _SHOWN, **TAGS},
    "DescribeTrialComponent": _COMPONENT,
    "ListTrialComponents": {
        **_LIST,
        **_EXPERIMENT,
        **_TRIAL,
        "SourceArn": Honored("case does not matter; a running training job without a component gets it"),
    },
    "UpdateTrialComponent": {
        **_MEMBERS,
        **{
            f"{name}ToRemove": Honored("after those of the same request were added")
            for name in ("Parameters", "InputArtifacts", "OutputArtifacts")
        },
    },
    "DeleteTrialComponent": {"TrialComponentName": Honored("a component of a trial is kept: disassociate it first")},
    "AssociateTrialComponent": {**_COMPONENT, **_TRIAL},
    "DisassociateTrialComponent": {**_COMPONENT, **_TRIAL},
    "CreateArtifact": {
        "ArtifactName": Honored(),
        **_PLACE,
        **honored("ArtifactType", "Properties"),
        **_METADATA,
        **TAGS,
    },
    "DescribeArtifact": _ARTIFACT,
    "ListArtifacts": {**_LIST, "SourceUri": Honored(), "ArtifactType": Honored()},
    "UpdateArtifact": {
        **_ARTIFACT,
        "ArtifactName": Honored(),
        "Properties": Honored("added to those that the artifact has"),
        "PropertiesToRemove": Honored("after those of the same request were added"),
    },
    "DeleteArtifact": {"ArtifactArn": Honored("an artifact with associations is kept"), **_PLACE},
    "AddAssociation": {
        name: Honored("of an artifact, a trial component or an experiment; there are no actions and contexts")
        for name in ("SourceArn", "DestinationArn")
    }
    | {"AssociationType": Honored()},
    "DeleteAssociation": _ENDS,
    "ListAssociations": {
        **_LIST,
        **_ENDS,
        "SourceType": Honored("ArtifactType, or SourceType of a job's trial component"),
        "DestinationType": Honored("ArtifactType, or SourceType of a job's trial component"),
        "AssociationType": Honored(),
    },
}

METRICS_OPERATIONS: Mapping[str, Rows] = {
    "BatchPutMetrics": {
        **_COMPONENT,
        **honored("MetricData", "MetricData[].MetricName", "MetricData[].Timestamp", "MetricData[].Step"),
        "MetricData[].Value": Honored("DescribeTrialComponent and Search show it at once"),
    },
    "BatchGetMetrics": {
        **honored("MetricQueries", "MetricQueries[].MetricName"),
        "MetricQueries[].ResourceArn": Honored("of a trial component"),
        "MetricQueries[].MetricStat": Honored(),
        "MetricQueries[].Period": Honored("IterationNumber with XAxisType IterationNumber, the others with Timestamp"),
        "MetricQueries[].XAxisType": Honored("IterationNumber: values without a Step are left out"),
        "MetricQueries[].Start": Honored("a step, or seconds since the epoch"),
        "MetricQueries[].End": Honored("a step, or seconds since the epoch"),
    },
}
