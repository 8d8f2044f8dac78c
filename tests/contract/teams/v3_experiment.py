"""An experiment with version 3 of AWS's SDK: runs with parameters and metrics, and resources of sagemaker-core."""

from sagemaker.core.common_utils import name_from_base
from sagemaker.core.experiments.run import Run, list_runs, load_run
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.resources import Experiment, Trial, TrialComponent

session = Session()
experiment = name_from_base("team-experiment")
with Run(experiment_name=experiment, run_name="first", sagemaker_session=session) as run:
    run.log_parameters({"rows": 500, "kind": "small"})
    for step in range(3):
        run.log_metric("loss", 1 / (step + 1), step=step)
with load_run(experiment_name=experiment, run_name="first", sagemaker_session=session) as run:
    run.log_parameter("checked", "yes")
with Run(experiment_name=experiment, run_name="second", sagemaker_session=session) as run:
    run.log_metric("loss", 0.5)
runs = list_runs(experiment_name=experiment, sagemaker_session=session)
print("RUNS", sorted(each.run_name for each in runs))

found = Experiment.get(experiment_name=experiment)
trials = [each.trial_name for each in Trial.get_all(experiment_name=experiment)]
print("TRIALS", len(trials), trials[0].startswith("Default-Run-Group"), found.experiment_name == experiment)
components = [
    TrialComponent.get(trial_component_name=each.trial_component_name)
    for each in TrialComponent.get_all(experiment_name=experiment)
]
first = next(each for each in components if each.trial_component_name.endswith("-first"))
print("FIRST", sorted(first.parameters), [(each.metric_name, each.count, each.min) for each in first.metrics])
