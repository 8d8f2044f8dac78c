"""From a model archive to an endpoint, and predictions."""

import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tidemill.errors import EndpointFailed
from tidemill.sdk import (
    DataCaptureConfig,
    MetadataProperties,
    MetricsSource,
    Model,
    ModelMetrics,
    ModelPackage,
    Predictor,
    Processor,
    ScriptProcessor,
    Session,
    TensorFlow,
    TensorFlowModel,
    TensorFlowPredictor,
    TensorFlowProcessor,
    Transformer,
)
from tidemill.sdk import serializers as s
from tidemill.sdk.endpoint import new_variants
from tidemill.sdk.hosting import production_variant
from tidemill.sdk.tensorflow_serializers import tf_deserializer, tf_json_deserializer

PEERS = Path(__file__).parents[4] / ".venvs/peers/bin/python"
BUCKET = "sagemaker-us-west-2-000000000000"
MODEL = f"s3://{BUCKET}/job/output/model.tar.gz"
REGISTRY = "000000000000.dkr.ecr.us-west-2.amazonaws.com"
SERVERLESS = {"MemorySizeInMB": 2048, "MaxConcurrency": 2}


@pytest.fixture
def trained(aws: Any, session: Session, tmp_path: Path) -> TensorFlow:
    (tmp_path / "train.py").write_text("")
    estimator = TensorFlow(str(tmp_path / "train.py"), sagemaker_session=session)
    estimator.fit(job_name="job", wait=False)
    aws.jobs["job"].update({"TrainingJobStatus": "Completed", "ModelArtifacts": {"S3ModelArtifacts": MODEL}})
    return estimator


def test_deploy_creates_model_configuration_and_endpoint_and_waits(
    aws: Any, trained: TensorFlow, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor = trained.deploy(2, "ml.c5.xlarge", endpoint_name="digits", env={"A": "b"}, tags={"k": "v"})
    (model,) = aws.named("CreateModel")
    assert model["PrimaryContainer"] == {
        "Image": f"{REGISTRY}/tensorflow-inference:2.21.0-cpu",
        "ModelDataUrl": MODEL,
        "Environment": {"A": "b"},
    }
    (config,) = aws.named("CreateEndpointConfig")
    assert config["ProductionVariants"] == [
        {
            "VariantName": "AllTraffic",
            "ModelName": model["ModelName"],
            "InitialInstanceCount": 2,
            "InstanceType": "ml.c5.xlarge",
            "InitialVariantWeight": 1,
        }
    ]
    assert aws.named("CreateEndpoint") == [
        {"EndpointName": "digits", "EndpointConfigName": "digits", "Tags": [{"Key": "k", "Value": "v"}]}
    ]
    assert isinstance(predictor, TensorFlowPredictor)
    out = capsys.readouterr().out
    assert "Endpoint digits: Creating" in out
    assert "Endpoint digits: InService" in out
    trained.delete_endpoint()
    assert aws.named("DeleteEndpoint") == [{"EndpointName": "digits"}]
    with pytest.raises(ValueError, match="has no endpoint"):
        trained.delete_endpoint()


def test_an_endpoint_that_fails_raises_its_reason(aws: Any, trained: TensorFlow) -> None:
    aws.endpoints["digits"] = [{"EndpointStatus": "Failed", "FailureReason": "no SavedModel bundles found!"}]
    with pytest.raises(EndpointFailed, match="no SavedModel bundles found!"):
        trained.deploy(endpoint_name="digits")


def test_an_endpoint_can_get_another_model(aws: Any, trained: TensorFlow) -> None:
    trained.deploy(endpoint_name="digits", update_endpoint=True, wait=False)
    (update,) = aws.named("UpdateEndpoint")
    assert update["EndpointName"] == "digits"
    assert update["EndpointConfigName"] == aws.named("CreateEndpointConfig")[0]["EndpointConfigName"] != "digits"
    with pytest.raises(ValueError, match="needs endpoint_name"):
        trained.deploy(update_endpoint=True)


def test_an_update_that_is_rolled_back_raises_its_reason(aws: Any, trained: TensorFlow) -> None:
    # The fake returns these descriptions one after the other.
    kept = {"EndpointStatus": "InService", "EndpointConfigName": "before", "FailureReason": "no SavedModel"}
    aws.endpoints["digits"] = [{"EndpointStatus": "Updating", "EndpointConfigName": "before"}, kept]
    with pytest.raises(EndpointFailed, match="rolled back, it serves before:\nno SavedModel"):
        trained.deploy(endpoint_name="digits", update_endpoint=True)


def test_capture_options_are_sent_with_the_configuration(aws: Any, trained: TensorFlow) -> None:
    trained.deploy(wait=False, data_capture_config=DataCaptureConfig(True, capture_options=["RESPONSE"]))
    assert aws.named("CreateEndpointConfig")[0]["DataCaptureConfig"] == {
        "EnableCapture": True,
        "InitialSamplingPercentage": 20,
        "DestinationS3Uri": f"s3://{BUCKET}/model-monitor/data-capture",
        "CaptureOptions": [{"CaptureMode": "Output"}],
        "CaptureContentTypeHeader": {"CsvContentTypes": ["text/csv"], "JsonContentTypes": ["application/json"]},
    }
    with pytest.raises(ValueError, match="expected 'REQUEST', 'RESPONSE'"):
        DataCaptureConfig(True, capture_options=["Input"])


def test_a_new_variant_is_described_completely() -> None:
    present = [{"VariantName": "a", "ModelName": "m"}, {"VariantName": "b", "ModelName": "n"}]
    assert new_variants(present, count=None, instance_type=None, model=None) == present
    with pytest.raises(ValueError, match="give both"):
        new_variants(present, count=2, instance_type=None, model=None)
    with pytest.raises(ValueError, match="m, n; give model_name"):
        new_variants(present, count=2, instance_type="local", model=None)
    (variant,) = new_variants(present[:1], count=2, instance_type="local", model=None)
    assert (variant["ModelName"], variant["InitialInstanceCount"]) == ("m", 2)


def test_the_python_kind_gets_the_training_code_by_default(aws: Any, trained: TensorFlow) -> None:
    trained.deploy(endpoint_type="python", wait=False)
    (model,) = aws.named("CreateModel")
    assert model["PrimaryContainer"]["Image"] == f"{REGISTRY}/sagemaker-tensorflow:2.21.0-cpu-py3"
    environment = model["PrimaryContainer"]["Environment"]
    assert environment["SAGEMAKER_PROGRAM"] == "train.py"
    assert environment["SAGEMAKER_SUBMIT_DIRECTORY"] == f"s3://{BUCKET}/job/source/sourcedir.tar.gz"
    with pytest.raises(ValueError, match="endpoint_type='tfs' is not a kind"):
        trained.deploy(endpoint_type="tfs")


@pytest.mark.parametrize(
    ("endpoint_type", "variable"),
    [("python", "SAGEMAKER_MODEL_SERVER_WORKERS"), ("tensorflow-serving", "SAGEMAKER_GUNICORN_WORKERS")],
)
def test_the_number_of_workers_is_a_variable_of_the_server(session: Session, endpoint_type: str, variable: str) -> None:
    model = TensorFlowModel(MODEL, endpoint_type=endpoint_type, model_server_workers=3, sagemaker_session=session)
    assert model.container("local")["Environment"][variable] == "3"
    with pytest.raises(ValueError, match="model_server_workers=0: expected at least 1"):
        TensorFlowModel(MODEL, model_server_workers=0, sagemaker_session=session)


def test_an_accelerator_is_ignored_with_a_warning(trained: TensorFlow) -> None:
    with pytest.warns(UserWarning, match="accelerator_type='ml.eia1.medium' is ignored"):
        trained.deploy(accelerator_type="ml.eia1.medium", wait=False)
    with pytest.warns(UserWarning, match="accelerator_type='ml.eia1.medium' is ignored") as caught:
        trained.create_model().create("ml.m5.large", "ml.eia1.medium", None, {"k": "v"})
    assert caught[0].filename == __file__


def test_options_by_position_are_those_of_awss_sdk(aws: Any, trained: TensorFlow, session: Session) -> None:
    session.s3_client.create_bucket(Bucket="out")
    made = (
        Transformer("digits", 1, "ml.m4.xlarge", "MultiRecord", "Line", "s3://out/a", "key", "text/csv", 2, 6),
        trained.create_model().transformer(1, "ml.m4.xlarge", "MultiRecord", "Line", "s3://out/a", "key", "text/csv"),
        trained.transformer(1, "ml.m4.xlarge", "MultiRecord", "Line", "s3://out/a", "key", "text/csv", {"A": "b"}, 2),
    )
    for transformer in made:
        assert (transformer.strategy, transformer.assemble_with) == ("MultiRecord", "Line")
        assert (transformer.output_path, transformer.output_kms_key, transformer.accept) == (
            "s3://out/a",
            "key",
            "text/csv",
        )
    assert made[0].max_payload == 6
    assert made[2].max_concurrent_transforms == 2
    image = f"{REGISTRY}/tensorflow-training:2.21.0-cpu-py311"
    Processor("role", image, 1, "ml.m5.large", ["x"], 50, None, None, 60, "base", session).run(wait=False)
    command = ScriptProcessor("role", image, ["python3"], 1, "ml.m5.large", 50, sagemaker_session=session)
    of_framework = TensorFlowProcessor(
        "2.21", "role", 1, "ml.m5.large", "py3", None, None, 50, None, None, "s3://out/code", 60, "base", session
    )
    assert of_framework.code_location == "s3://out/code"
    assert command.volume_size_in_gb == of_framework.volume_size_in_gb == 50
    (request,) = aws.named("CreateProcessingJob")
    assert request["ProcessingResources"]["ClusterConfig"]["VolumeSizeInGB"] == 50
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 60}
    session.create_endpoint_config("config", "digits", 1, "ml.m5.large", None, {"k": "v"})
    assert aws.named("CreateEndpointConfig")[-1]["Tags"] == [{"Key": "k", "Value": "v"}]
    with pytest.raises(TypeError, match="got 'strategy' by position and by keyword"):
        Transformer("digits", 1, "ml.m4.xlarge", "MultiRecord", strategy="SingleRecord")
    with pytest.raises(TypeError, match="at most 14 arguments by position, but 16 were given"):
        ScriptProcessor(*range(16))


def test_models_and_endpoints_are_made_by_name_with_several_variants(aws: Any, session: Session) -> None:
    container = {"Image": f"{REGISTRY}/tensorflow-inference:2.21.0-cpu", "ModelDataUrl": MODEL}
    assert session.create_model("first", "role", container, tags={"k": "v"}) == "first"
    session.create_model("second", container_defs=[container])
    first, second = aws.named("CreateModel")
    assert first["ExecutionRoleArn"].endswith(":role/role")
    assert (first["PrimaryContainer"], first["Tags"]) == (container, [{"Key": "k", "Value": "v"}])
    assert second["Containers"] == [container]
    with pytest.raises(ValueError, match="needs container_defs, or primary_container, and not both"):
        session.create_model("third")
    variants = [
        production_variant("first", "ml.m5.large", 2, "First", 0.25),
        production_variant("second", variant_name="Second", serverless_inference_config=SERVERLESS),
    ]
    aws.endpoints["both"] = [{"EndpointStatus": "InService"}]
    assert session.endpoint_from_production_variants("both", variants, {"k": "v"}) == "both"
    (config,) = aws.named("CreateEndpointConfig")
    assert config["ProductionVariants"] == [
        {
            "ModelName": "first",
            "VariantName": "First",
            "InitialVariantWeight": 0.25,
            "InitialInstanceCount": 2,
            "InstanceType": "ml.m5.large",
        },
        {
            "ModelName": "second",
            "VariantName": "Second",
            "InitialVariantWeight": 1,
            "ServerlessConfig": SERVERLESS,
        },
    ]
    (endpoint,) = aws.named("CreateEndpoint")
    assert endpoint["EndpointConfigName"] == endpoint["EndpointName"] == "both"
    assert endpoint["Tags"] == config["Tags"] == [{"Key": "k", "Value": "v"}]


def test_an_estimator_registers_its_model_and_shows_its_metrics(aws: Any, trained: TensorFlow) -> None:
    arn = "arn:aws:sagemaker:us-west-2:000000000000:model-package/tides/1"
    aws.packages[arn] = {}
    package = trained.register(
        ["text/csv"],
        ["text/csv"],
        ["ml.m5.large"],
        None,
        model_package_group_name="tides",
        framework="TENSORFLOW",
        framework_version="2.19",
        env={"A": "b"},
    )
    assert package.model_package_arn == arn
    (request,) = aws.named("CreateModelPackage")
    (container,) = request["InferenceSpecification"]["Containers"]
    assert (container["ModelDataUrl"], container["Environment"]) == (MODEL, {"A": "b"})
    assert container["FrameworkVersion"] == "2.19"
    assert request["InferenceSpecification"]["SupportedRealtimeInferenceInstanceTypes"] == ["ml.m5.large"]
    with pytest.raises(TypeError, match="whatever"):
        trained.register(["text/csv"], whatever=1)
    assert trained.training_job_analytics.name == "job"


def test_a_model_has_the_network_of_its_estimator(aws: Any, session: Session, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    estimator = TensorFlow(
        str(tmp_path / "train.py"), subnets=["s"], security_group_ids=["g"], sagemaker_session=session
    )
    estimator.create_model(model_data=MODEL).create()
    estimator.create_model(model_data=MODEL, vpc_config_override={"Subnets": ["t"], "SecurityGroupIds": ["h"]}).create()
    assert [each["VpcConfig"]["Subnets"] for each in aws.named("CreateModel")] == [["s"], ["t"]]


def test_inference_code_is_packed_into_the_archive(aws: Any, session: Session, tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text("def handler(data, context): ...\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/extra.py").write_text("")
    aws.objects[BUCKET, "job/output/model.tar.gz"] = archive({"1/saved_model.pb": b"graph", "code/old.py": b""})
    model = TensorFlowModel(
        MODEL,
        "SageMakerRole",
        str(tmp_path / "handlers.py"),
        dependencies=[str(tmp_path / "lib/extra.py")],
        name="served",
        sagemaker_session=session,
    )
    model.create()
    (request,) = aws.named("CreateModel")
    assert request["PrimaryContainer"]["ModelDataUrl"] == f"s3://{BUCKET}/served/model.tar.gz"
    with tarfile.open(fileobj=io.BytesIO(aws.objects[BUCKET, "served/model.tar.gz"])) as packed:
        assert sorted(packed.getnames()) == ["1/saved_model.pb", "code/inference.py", "code/lib/extra.py"]
        content = packed.extractfile("1/saved_model.pb")
        assert content is not None
        assert content.read() == b"graph"


def test_a_model_of_another_image_needs_that_image(aws: Any, session: Session) -> None:
    with pytest.raises(ValueError, match="needs image_uri"):
        Model(MODEL, sagemaker_session=session).create()
    Model(MODEL, image_uri="tidemill/other:1", sagemaker_session=session).deploy(wait=False)
    assert aws.named("CreateModel")[0]["PrimaryContainer"]["Image"] == "tidemill/other:1"
    assert aws.named("CreateEndpoint")[0]["EndpointName"].startswith("other-20")


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


# Predicting


class Array:
    """The methods of a NumPy array that the SDK uses, without NumPy."""

    def tolist(self) -> list[float]:
        return [1.0, 2.0]


def test_arrays_and_lists_are_sent_as_json_and_returned_as_values(aws: Any, session: Session) -> None:
    predictor = TensorFlowPredictor("digits", session)
    assert predictor.predict({"instances": [Array()]}) == {"predictions": [[1.0]]}
    name, headers, body = aws.invocations[0]
    assert (name, json.loads(body)) == ("digits", {"instances": [[1.0, 2.0]]})
    assert (headers["Content-Type"], headers["Accept"]) == ("application/json", "application/json")
    with pytest.raises(TypeError, match="object has no JSON form"):
        predictor.predict([object()])


def test_method_model_and_version_travel_as_custom_attributes(aws: Any, session: Session) -> None:
    predictor = TensorFlowPredictor("digits", session, model_name="second", model_version=3)
    predictor.classify({"examples": [{"x": 1.0}]})
    predictor.regress({"examples": [{"x": 1.0}]})
    predictor.predict([1.0], custom_attributes="c=d")
    sent = [headers["X-Amzn-SageMaker-Custom-Attributes"] for _, headers, _ in aws.invocations]
    model = "tfs-model-name=second,tfs-model-version=3"
    assert sent == [f"tfs-method=classify,{model}", f"tfs-method=regress,{model}", f"c=d,{model}"]
    with pytest.raises(ValueError, match=r"classify takes JSON.*'text/csv'"):
        TensorFlowPredictor("digits", session, s.CSVSerializer()).classify([])


def test_a_plain_predictor_sends_and_returns_bytes_until_its_attributes_change(aws: Any, session: Session) -> None:
    predictor = Predictor("digits", session)
    aws.reply = ("text/csv", b"1,2\n")
    assert predictor.predict(b"[1]") == b"1,2\n"
    predictor.content_type = predictor.accept = "text/csv"
    predictor.serializer = predictor.deserializer = None
    assert predictor.predict("3,4") == b"1,2\n"
    predictor.serializer, predictor.deserializer = s.csv_serializer, s.csv_deserializer
    predictor.content_type = predictor.accept = None
    assert predictor.predict([5, 6]) == [["1", "2"]]
    sent = [(body, headers["Content-Type"], headers["Accept"]) for _, headers, body in aws.invocations]
    assert sent == [
        (b"[1]", "application/octet-stream", "*/*"),
        (b"3,4", "text/csv", "text/csv"),
        (b"5,6", "text/csv", "text/csv"),
    ]


@pytest.mark.parametrize("kind", [Predictor, TensorFlowPredictor])
def test_the_endpoint_may_be_given_by_its_earlier_name(session: Session, kind: Any) -> None:
    assert kind(endpoint="digits", sagemaker_session=session).endpoint_name == "digits"
    for names in ({}, {"endpoint_name": "a", "endpoint": "b"}):
        with pytest.raises(ValueError, match="are two names of one argument; give one"):
            kind(sagemaker_session=session, **names)


def test_messages_of_tensorflow_serving_need_their_package() -> None:
    """With the package: tests of `tidemill-serving`, against a server."""
    assert tf_json_deserializer.deserialize(io.BytesIO(b"[1]")) == [1]
    for deserializer in (tf_json_deserializer, tf_deserializer):
        with pytest.raises(ImportError, match="install tensorflow-serving-api, or use json_deserializer"):
            deserializer.deserialize(io.BytesIO(b"{}"), "application/json")


def test_serializers_may_be_objects_or_functions(aws: Any, session: Session) -> None:
    aws.reply = ("text/csv", b"1,2\n3,4\n")
    predictor = Predictor("digits", session, s.CSVSerializer(), s.CSVDeserializer())
    assert predictor.predict([[1, 2], [3, 4]]) == [["1", "2"], ["3", "4"]]
    assert aws.invocations[0][2] == b"1,2\n3,4"
    earlier = Predictor(
        "digits", session, lambda data: f"<{data}>", lambda stream, content_type: (content_type, stream.read()), "a/b"
    )
    assert earlier.predict("x") == ("text/csv", b"1,2\n3,4\n")
    assert (aws.invocations[1][2], aws.invocations[1][1]["Content-Type"]) == (b"<x>", "a/b")


@pytest.mark.parametrize(
    ("serializer", "data", "body"),
    [
        (s.CSVSerializer(), [1, 2], "1,2"),
        (s.CSVSerializer(), Array(), "1.0,2.0"),
        (s.CSVSerializer(), "1,2\n", "1,2\n"),
        (s.CSVSerializer(), [["a,b", 1]], '"a,b",1'),
        (s.JSONLinesSerializer(), [{"a": 1}, [2]], '{"a": 1}\n[2]'),
        (s.JSONSerializer(), io.BytesIO(b"[1]"), b"[1]"),
        (s.json_serializer, "text", '"text"'),
        (s.IdentitySerializer(), b"\0", b"\0"),
    ],
)
def test_each_serializer_makes_its_body(serializer: Any, data: Any, body: Any) -> None:
    assert serializer.serialize(data) == body


def test_a_client_may_derive_serializers_from_the_base_classes(aws: Any, session: Session) -> None:
    class Image(s.SimpleBaseSerializer):
        def serialize(self, data: str) -> bytes:
            return f"image {data}".encode()

    class Upper(s.BaseDeserializer):
        ACCEPT = "text/mine"

        def deserialize(self, stream: Any, content_type: str = "") -> str:
            return stream.read().decode().upper()

    aws.reply = ("text/mine", b"cat")
    assert Predictor("digits", session, Image("image/png"), Upper()).predict("x") == "CAT"
    ((_, headers, body),) = aws.invocations
    assert (body, headers["Content-Type"], headers["Accept"]) == (b"image x", "image/png", "text/mine")
    assert Image().CONTENT_TYPE == "application/json"
    with pytest.raises(TypeError, match="abstract"):
        s.SimpleBaseSerializer()


def test_each_deserializer_reads_its_body() -> None:
    assert s.json_deserializer(io.BytesIO(b"[1]"), "application/json") == [1]
    assert s.StringDeserializer().deserialize(io.BytesIO("é".encode())) == "é"
    assert s.BytesDeserializer().deserialize(io.BytesIO(b"\0")) == b"\0"


def test_serializers_and_deserializers_are_those_of_awss_sdk() -> None:
    """Arguments, types and bodies are equal; runs where AWS's SDK and NumPy are installed."""
    source = Path(s.__file__).parents[2]
    command = [PEERS, "-W", "ignore", Path(__file__).with_name("aws_v2_serializers.py"), source]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "6 serializers and 7 deserializers alike"


@pytest.mark.parametrize(
    "argument",
    ["explainer_config", "inference_recommendation_id"],
)
def test_unsupported_endpoint_arguments_are_refused_at_the_call(aws: Any, session: Session, argument: str) -> None:
    with pytest.raises(ValueError, match=rf"{argument}='x' is not supported"):
        TensorFlowModel(MODEL, sagemaker_session=session).deploy(**{argument: "x"})
    assert aws.named("CreateModel") == []


def test_a_component_is_refused_when_a_predictor_is_made(session: Session) -> None:
    with pytest.raises(ValueError, match=r"component_name='c' is not supported.*target_variant"):
        TensorFlowPredictor("digits", session, component_name="c")


def test_a_predictor_deletes_endpoint_and_configuration(aws: Any, session: Session) -> None:
    Predictor("digits", session).delete_endpoint()
    assert aws.named("DeleteEndpointConfig") == [{"EndpointConfigName": "digits"}]
    assert aws.named("DeleteEndpoint") == [{"EndpointName": "digits"}]


# The registry


def test_a_model_is_registered_and_its_package_deployed(aws: Any, session: Session) -> None:
    arn = "arn:aws:sagemaker:us-west-2:000000000000:model-package/tides/1"
    aws.packages[arn] = {"ModelPackageName": "tides", "ModelApprovalStatus": "PendingManualApproval"}
    model = TensorFlowModel(MODEL, sagemaker_session=session, env={"A": "b"})
    metrics = ModelMetrics(model_statistics=MetricsSource("application/json", "s3://data/e.json"))
    for _ in range(2):
        package = model.register(
            ["application/json"],
            ["application/json"],
            ["ml.m5.large"],
            model_package_group_name="tides",
            model_metrics=metrics,
            metadata_properties=MetadataProperties(commit_id="abc"),
            approval_status="PendingManualApproval",
            customer_metadata_properties={"rmse": "0.1"},
            tags={"k": "v"},
        )
    assert [each["ModelPackageGroupName"] for each in aws.named("CreateModelPackageGroup")] == ["tides", "tides"]
    request = {**aws.named("CreateModelPackage")[0]}
    assert request.pop("ClientToken")
    assert request == {
        "ModelPackageGroupName": "tides",
        "ModelApprovalStatus": "PendingManualApproval",
        "ModelMetrics": {
            "ModelQuality": {"Statistics": {"ContentType": "application/json", "S3Uri": "s3://data/e.json"}}
        },
        "MetadataProperties": {"CommitId": "abc"},
        "CustomerMetadataProperties": {"rmse": "0.1"},
        "Tags": [{"Key": "k", "Value": "v"}],
        "InferenceSpecification": {
            "Containers": [
                {
                    "Image": f"{REGISTRY}/tensorflow-inference:2.21.0-cpu",
                    "ModelDataUrl": MODEL,
                    "Environment": {"A": "b"},
                    "Framework": "TENSORFLOW",
                    "FrameworkVersion": "2.21",
                }
            ],
            "SupportedContentTypes": ["application/json"],
            "SupportedResponseMIMETypes": ["application/json"],
            "SupportedRealtimeInferenceInstanceTypes": ["ml.m5.large"],
        },
    }
    assert isinstance(package, ModelPackage) and package.model_package_arn == arn
    package.deploy(endpoint_name="tides")
    (approved,) = aws.named("UpdateModelPackage")
    assert approved["ModelApprovalStatus"] == "Approved"
    (created,) = aws.named("CreateModel")
    assert created["PrimaryContainer"] == {"ModelPackageName": arn}
    assert created["ModelName"].startswith("tides-1-")
    package.update_customer_metadata({"checked": "yes"})
    package.remove_customer_metadata_properties(["rmse"])
    assert [sorted(each) for each in aws.named("UpdateModelPackage")[1:]] == [
        ["CustomerMetadataProperties", "ModelPackageArn"],
        ["CustomerMetadataPropertiesToRemove", "ModelPackageArn"],
    ]
    with pytest.raises(ValueError, match="Marketplace"):
        model.register(model_package_name="alone", marketplace_cert=True)
