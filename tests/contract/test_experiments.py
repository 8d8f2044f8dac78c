"""AWS's own SageMaker SDK, version 2, unmodified: runs outside and inside a job, the registry, and what is found."""

import json
import textwrap
from pathlib import Path

from forked_sdk import ForkedSdk
from tidemill.testing import Service

CLIENT = """
    import json, sys
    import sagemaker
    from sagemaker.analytics import ExperimentAnalytics
    from sagemaker.estimator import Estimator
    from sagemaker.experiments.run import Run, list_runs, load_run
    from sagemaker.lineage.artifact import Artifact
    from sagemaker.lineage.association import Association
    from sagemaker.model import Model, ModelPackage
    from sagemaker.model_metrics import MetricsSource, ModelMetrics
    from sagemaker.predictor import Predictor
    from sagemaker.serializers import JSONSerializer
    from sagemaker.deserializers import JSONDeserializer

    peers = sys.argv[1]
    session = sagemaker.Session()
    client = session.sagemaker_client
    found = {}

    with Run(experiment_name="Tides", run_name="First", sagemaker_session=session) as run:
        run.log_parameters({"rate": 0.1, "kind": "lstm"})
        for step in range(12):
            run.log_metric("loss", 1 / (step + 1), step=step)
        run.log_artifact("data", "s3://bucket/data", is_output=False)
        run.log_file("client.py", name="client")
        estimator = Estimator(
            image_uri="IMAGE", role="SageMakerRole", instance_count=1, instance_type="ml.m5.large",
            entry_point="train.py", source_dir="source", environment={"PEERS": peers},
            hyperparameters={"epochs": 2}, metric_definitions=[{"Name": "score", "Regex": "score=([0-9.]+)"}],
        )
        estimator.fit(job_name="tides-job")

    # As log_confusion_matrix does, which needs scikit-learn.
    chart = Artifact.create(
        artifact_name="chart", source_uri="s3://bucket/chart.json", artifact_type="ConfusionMatrix",
        properties={"classes": "2"}, sagemaker_session=session,
    )
    first = client.describe_trial_component(TrialComponentName="tides-first")["TrialComponentArn"]
    Association.create(first, chart.artifact_arn, association_type="Produced", sagemaker_session=session)
    listed = Association.list(source_arn=first, sagemaker_session=session)
    found["lineage"] = [[each.destination_name, each.destination_type, each.association_type] for each in listed]
    chart.properties_to_remove = ["classes"]
    chart.save()
    loaded = Artifact.load(chart.artifact_arn, session)
    found["artifact"] = [loaded.source.source_uri, loaded.properties]
    loaded.delete(disassociate=True)
    found["lineage left"] = len(list(Artifact.list(sagemaker_session=session)))

    with load_run(run_name="first", experiment_name="tides", sagemaker_session=session) as again:
        again.log_parameter("checked", "yes")
    found["runs"] = [each.run_name for each in list_runs(experiment_name="tides", sagemaker_session=session)]
    component = client.describe_trial_component(TrialComponentName="tides-first")
    found["parameters"] = {name: next(iter(value.values())) for name, value in component["Parameters"].items()}
    found["status"] = component["Status"]["PrimaryStatus"]
    found["metrics"] = {each["MetricName"]: [each["Count"], each["Min"], each["Last"]] for each in component["Metrics"]}
    found["artifacts"] = [sorted(component["InputArtifacts"]), sorted(component["OutputArtifacts"])]
    found["sources"] = [each["SourceArn"].rpartition("/")[2] for each in component["Sources"]]
    job = client.describe_trial_component(TrialComponentName="tides-job-aws-training-job")
    found["job"] = [job["Status"]["PrimaryStatus"], job["Parameters"]["epochs"], job["Metrics"][0]["Last"]]
    series = session.boto_session.client("sagemaker-metrics").batch_get_metrics(MetricQueries=[{
        "MetricName": "score", "ResourceArn": job["TrialComponentArn"], "MetricStat": "Count", "Period": "OneHour",
        "XAxisType": "Timestamp",
    }])["MetricQueryResults"][0]
    found["series"] = sum(series["MetricValues"])
    results = session.search(
        resource="ExperimentTrialComponent",
        search_expression={"Filters": [{"Name": "Parents.ExperimentName", "Operator": "Equals", "Value": "tides"}]},
        sort_by="Parameters.rate",
    )["Results"]
    found["search"] = [each["TrialComponent"]["TrialComponentName"] for each in results]

    table = ExperimentAnalytics(
        experiment_name="tides", sagemaker_session=session, sort_by="metrics.loss.max", sort_order="Ascending",
    ).dataframe()
    columns = ["TrialComponentName", "loss - Count", "score - Avg", "score - Last"]
    found["table"] = table[columns].fillna(0).values.tolist()

    metrics = ModelMetrics(model_statistics=MetricsSource("application/json", "s3://bucket/evaluation.json"))
    model = Model("SERVING", model_data=estimator.model_data, role="SageMakerRole", sagemaker_session=session)
    for approval in ("Approved", "PendingManualApproval"):
        package = model.register(
            content_types=["application/json"], response_types=["application/json"],
            inference_instances=["ml.m5.large"], transform_instances=["ml.m5.large"],
            model_package_group_name="tides", approval_status=approval, model_metrics=metrics,
            customer_metadata_properties={"rmse": "0.1"}, description="of the sea",
        )
    package.update_approval_status("Rejected", approval_description="too early")
    package = ModelPackage(
        role="SageMakerRole", model_package_arn=package.model_package_arn, sagemaker_session=session,
        predictor_cls=Predictor,
    )
    predictor = package.deploy(1, "ml.m5.large", serializer=JSONSerializer(), deserializer=JSONDeserializer())
    found["prediction"] = predictor.predict({"instances": [2.0, 4.0]})
    described = client.describe_model_package(ModelPackageName=package.model_package_arn)
    found["package"] = [described["ModelPackageVersion"], described["ModelApprovalStatus"]]
    predictor.delete_endpoint()
    package.delete_model()
    own = model.register(
        content_types=["application/json"], response_types=["application/json"], model_package_name="tides-alone",
        inference_instances=["ml.m5.large"], transform_instances=["ml.m5.large"],
    )
    found["own"] = own.model_package_arn.rpartition(":")[2]
    print("\\nFOUND", json.dumps(found))
"""

SCRIPT = """
    import os, subprocess
    import tensorflow as tf

    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run([os.environ["PEERS"], "inside.py"], env=environment, check=True)
    for score in (0.25, 0.5, 0.75):
        print(f"score={score}")

    class Half(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def __call__(self, x):
            return {"y": x * 0.5 + 2.0}

    model = Half()
    tf.saved_model.save(model, os.environ["SM_MODEL_DIR"] + "/1", signatures=model.__call__)
"""

INSIDE = """
    import sagemaker
    from sagemaker.experiments.run import load_run

    with load_run(sagemaker_session=sagemaker.Session()) as run:
        run.log_parameter("inside", 1)
        run.log_metric("loss", 0.01, step=12)
"""


def test_runs_and_the_registry(tidemill_service: Service, aws_sdk: ForkedSdk, root: Path, tmp_path: Path) -> None:
    registry = "763104351884.dkr.ecr.us-west-2.amazonaws.com"
    client = CLIENT.replace("IMAGE", f"{registry}/tensorflow-training:2.21.0-cpu-py312")
    (tmp_path / "client.py").write_text(
        textwrap.dedent(client.replace("SERVING", f"{registry}/tensorflow-inference:2.21.0-cpu"))
    )
    (tmp_path / "source").mkdir()
    (tmp_path / "source/train.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "source/inside.py").write_text(textwrap.dedent(INSIDE))
    peers = root / ".venvs/peers/bin/python"
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **tidemill_service.environment}
    done = aws_sdk.run(Path("client.py"), peers, directory=tmp_path, variables=variables)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    assert json.loads(line.removeprefix("FOUND ")) == {
        "runs": ["first"],
        "lineage": [["chart", "ConfusionMatrix", "Produced"]],
        "artifact": ["s3://bucket/chart.json", {}],
        "lineage left": 0,
        "parameters": {"rate": 0.1, "kind": "lstm", "inside": 1.0, "checked": "yes"},
        "status": "Completed",
        "metrics": {"loss": [13, 0.01, 0.01]},
        "artifacts": [["data"], ["client"]],
        "sources": ["tides-job"],
        "job": ["Completed", {"NumberValue": 2.0}, 0.75],
        "search": ["tides-first", "tides-job-aws-training-job"],
        "series": 3.0,
        "table": [["tides-job-aws-training-job", 0.0, 0.5, 0.75], ["tides-first", 13.0, 0.0, 0.0]],
        "prediction": {"predictions": [3.0, 4.0]},
        "package": [2, "Approved"],
        "own": "model-package/tides-alone",
    }
