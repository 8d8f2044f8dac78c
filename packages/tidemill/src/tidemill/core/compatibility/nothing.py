"""Kinds of resources that cannot exist here: their lists are empty, and what creates them says what exists instead."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Recorded

EMPTY_LISTS: Mapping[str, str] = {
    "ListActions": "ActionSummaries",
    "ListAlgorithms": "AlgorithmSummaryList",
    "ListAppImageConfigs": "AppImageConfigs",
    "ListApps": "Apps",
    "ListAutoMLJobs": "AutoMLJobSummaries",
    "ListClusters": "ClusterSummaries",
    "ListCodeRepositories": "CodeRepositorySummaryList",
    "ListCompilationJobs": "CompilationJobSummaries",
    "ListContexts": "ContextSummaries",
    "ListDataQualityJobDefinitions": "JobDefinitionSummaries",
    "ListDeviceFleets": "DeviceFleetSummaries",
    "ListDevices": "DeviceSummaries",
    "ListDomains": "Domains",
    "ListEdgePackagingJobs": "EdgePackagingJobSummaries",
    "ListFeatureGroups": "FeatureGroupSummaries",
    "ListFlowDefinitions": "FlowDefinitionSummaries",
    "ListHubs": "HubSummaries",
    "ListHumanTaskUis": "HumanTaskUiSummaries",
    "ListImages": "Images",
    "ListInferenceComponents": "InferenceComponents",
    "ListInferenceExperiments": "InferenceExperiments",
    "ListInferenceRecommendationsJobs": "InferenceRecommendationsJobs",
    "ListLabelingJobs": "LabelingJobSummaryList",
    "ListLineageGroups": "LineageGroupSummaries",
    "ListMlflowTrackingServers": "TrackingServerSummaries",
    "ListModelBiasJobDefinitions": "JobDefinitionSummaries",
    "ListModelCards": "ModelCardSummaries",
    "ListModelExplainabilityJobDefinitions": "JobDefinitionSummaries",
    "ListModelQualityJobDefinitions": "JobDefinitionSummaries",
    "ListMonitoringExecutions": "MonitoringExecutionSummaries",
    "ListMonitoringSchedules": "MonitoringScheduleSummaries",
    "ListNotebookInstanceLifecycleConfigs": "NotebookInstanceLifecycleConfigs",
    "ListNotebookInstances": "NotebookInstances",
    "ListOptimizationJobs": "OptimizationJobSummaries",
    "ListProjects": "ProjectSummaryList",
    "ListSpaces": "Spaces",
    "ListStudioLifecycleConfigs": "StudioLifecycleConfigs",
    "ListSubscribedWorkteams": "SubscribedWorkteams",
    "ListTrainingPlans": "TrainingPlanSummaries",
    "ListUserProfiles": "UserProfiles",
    "ListWorkforces": "Workforces",
    "ListWorkteams": "Workteams",
}
"""By operation, the member of the reply that is an empty list."""

FILTERS_NOTHING = Recorded("the list is empty")
"""Row of every member of these operations."""

_NO_COMPONENTS = "a production variant of CreateEndpointConfig serves a model, and Mode MultiModel many models"
_NO_LINEAGE = "CreateArtifact and AddAssociation record what runs read and make, and ListAssociations shows it"
_NO_CALLBACKS = "a Processing step runs code between two others, and its script can wait for what happens elsewhere"
_NO_MONITORING = "DataCaptureConfig stores requests and answers in S3, where a processing job can read them"

INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("CreateAction", "CreateContext", "QueryLineage"), _NO_LINEAGE),
    "CreateAutoMLJob": "CreateHyperParameterTuningJob searches for the hyperparameters of your script",
    "CreateAutoMLJobV2": "CreateHyperParameterTuningJob searches for the hyperparameters of your script",
    "CreateCompilationJob": "endpoints run the SavedModel of your training; TrainingCompilerConfig compiles trainings",
    "CreateInferenceComponent": _NO_COMPONENTS,
    "DescribeInferenceComponent": _NO_COMPONENTS,
    "CreateInferenceExperiment": "production variants with weights divide the requests",
    "CreateMonitoringSchedule": _NO_MONITORING,
    "CreateNotebookInstance": "`tidemill env` prints what a notebook on this machine needs to reach this service",
    "CreateDomain": "`tidemill env` prints what a notebook on this machine needs to reach this service",
    "CreateFeatureGroup": "channels of jobs read files from S3",
    "CreateModelCard": "CreateModelPackage keeps a ModelCard, metrics and metadata of a version",
    "PutScheduledAction": "RegisterScalableTarget with another MinCapacity or MaxCapacity, from cron, scales by time",
    "SendPipelineExecutionStepFailure": _NO_CALLBACKS,
    "SendPipelineExecutionStepSuccess": _NO_CALLBACKS,
    "CreateTrainingPlan": "jobs wait in a queue until the machine has room",
}
"""By operation that is not implemented, what to use instead; the end of the error message."""
