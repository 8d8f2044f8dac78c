"""The TensorFlow and the Python that a request gets."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.frameworks import (
    ENVIRONMENTS,
    FRAMEWORKS,
    PYTHON_2_RELEASE,
    SCIKIT_LEARN,
    Framework,
    Frameworks,
    MappedImage,
    ProcessingFrameworks,
    environment_of,
    select,
)
from tidemill.core.images import DEFAULT_TENSORFLOW, Image
from tidemill.environments import builder

VERSIONS = st.one_of(
    st.none(),
    st.builds(
        lambda major, minor, patch: f"{major}.{minor}{patch}",
        st.integers(0, 4),
        st.integers(0, 40),
        st.sampled_from(["", ".0", ".1", ".5", ".99", ".0.1"]),
    ),
)
NEWEST = max(framework.number for framework in FRAMEWORKS.values())
PYTHONS = st.one_of(st.none(), st.just("py3"), st.integers(0, 20).map("py3{}".format))


def image(version: str | None, python: str | None = None, device: str = "cpu") -> Image:
    return Image("tensorflow-training", version, device, python)


def number(version: str) -> tuple[int, int]:
    major, minor = map(int, version.split(".")[:2])
    return major, minor


@given(VERSIONS, PYTHONS)
def test_each_request_gets_an_environment_with_a_supported_python_or_a_refusal_that_names_them(version, python):
    try:
        found = select(image(version, python))
    except ValueError as error:
        if version is not None and number(version) > NEWEST:
            assert f"the newest is {NEWEST[0]}.{NEWEST[1]}" in str(error)
            return
        refused = FRAMEWORKS[".".join(map(str, number(version or DEFAULT_TENSORFLOW)))]
        assert all("py" + each.replace(".", "") in str(error) for each in refused.pythons)
        assert python is not None
        return
    assert found.python is None or found.python in found.framework.pythons
    if python in (None, "py3"):
        assert found.python is None
    exact = version is None or number(version) == found.framework.number
    if exact and python is not None and "3." + python[3:] in found.framework.pythons:
        assert found.python == "3." + python[3:]
    assert exact or version in found.notices[0]


@given(VERSIONS.filter(lambda version: version is not None and number(version) <= NEWEST))
def test_no_other_version_would_be_nearer(version):
    asked, got = number(version), select(image(version)).framework.number
    known = [each.number for each in FRAMEWORKS.values()]
    newer = [each for each in known if each >= asked and each[0] == asked[0]]
    older = [each for each in known if each < asked]
    assert got == (min(newer) if newer else max(older) if older else min(known))


@pytest.mark.parametrize(
    ("version", "python", "runs_on"),
    [
        (None, None, "2.21"),
        ("2.21.0", "py311", "2.21"),
        ("2.14.1", "py310", "2.15"),
        ("2.11.0", "py39", "2.12"),
        ("2.3.1", "py37", "2.4"),
        ("2.0.0", "py36", "2.4"),
        (None, "py38", "2.6"),
        (None, "py310", "2.20"),
        ("1.12.0", "py3", "1.15"),
        ("1.16.0", "py37", "1.15"),
        ("0.12.0", "py3", "1.15"),
        ("1.15.2", "py36", "1.15"),
    ],
)
def test_versions_without_an_environment_run_on_the_nearest(version, python, runs_on):
    assert select(image(version, python)).framework.version == runs_on


@pytest.mark.parametrize(
    ("version", "python", "text"),
    [
        ("2.15.0", "py37", "does not run on Python 3.7; it runs on py39, py310, py311, or py3 for any"),
        ("1.15.5", "py311", "does not run on Python 3.11; it runs on py37, or py3 for any"),
        ("1.15.5", "py26", "there is no Python 2 for TensorFlow 1.15; ask for framework_version '1.15' with py27"),
        ("2.1.0", "py2", "there is no Python 2 for TensorFlow 2.4; ask for framework_version '1.15' with py27"),
        ("2.21.0", "py27", "there is no Python 2 for TensorFlow 2.21"),
    ],
)
def test_an_impossible_python_is_refused(version, python, text):
    with pytest.raises(ValueError, match=text):
        select(image(version, python))


@pytest.mark.parametrize(("version", "python"), [("1.15.5", "py2"), ("1.12.0", "py27"), (None, "py2")])
def test_scripts_for_python_2_run_on_it(version, python):
    found = select(image(version, python))
    assert (found.framework.version, found.python) == ("1.15", "2.7")
    assert "the last release of TensorFlow 1.15 for it (1.15.0)" in found.notices[-1]
    with pytest.raises(ValueError, match="model parallelism needs Python 3"):
        select(image(version, python), model_parallel=True)


def test_differences_from_the_request_are_reported():
    assert select(image("2.15.0", "py311")).notices == ()
    assert select(image("2.4.4", "py38")).notices == ()
    assert "2.4.1 runs as 2.4.4" in select(image("2.4.1", "py38")).notices[0]
    assert "TensorFlow 2.14.1 has no environment; running on 2.15.1" in select(image("2.14.1")).notices[0]
    (older,) = select(image("1.15.0", "py36")).notices
    assert older == "tidemill: Python 3.6 has no environment of TensorFlow 1.15; running on 3.7"
    assert select(image("2.18.1", "py310", "gpu")).notices == (
        "tidemill: the image is for GPUs; TensorFlow 2.18.1 for CPUs runs instead",
    )


def test_an_image_for_gpus_runs_on_gpus_if_the_machine_has_some_and_the_version_has_an_environment():
    found = select(image("2.21.0", "py311", "gpu"), gpus=1)
    assert (found.uses_gpus, found.notices) == (True, ())
    assert environment_of(found.framework.version, gpu=found.uses_gpus) == "tf-2.21-gpu"
    assert not select(image("2.21.0", "py311", "cpu"), gpus=1).uses_gpus
    old = select(image("2.15.0", "py311", "gpu"), gpus=1)
    assert (old.uses_gpus, len(old.notices)) == (False, 1)


def test_model_parallelism_runs_on_the_oldest_version_that_has_it_if_the_requested_one_is_older():
    def selected(version: str, python: str) -> tuple[str, str | None, tuple[str, ...]]:
        uri = f"1.dkr.ecr.eu-west-1.amazonaws.com/tensorflow-training:{version}-cpu-{python}"
        job = {"AlgorithmSpecification": {"TrainingImage": uri}, "HyperParameters": {"mp_parameters": "{}"}}
        found = Frameworks().of_training(job)
        return found.framework.version, found.python, found.notices

    for version, python in (("2.3.1", "py37"), ("2.4.1", "py37"), ("2.6.3", "py38")):
        *chosen, (notice,) = selected(version, python)
        assert chosen == ["2.12", None]
        nearest = "2.6" if version == "2.6.3" else "2.4"
        assert f"model parallelism is not in the environment of TensorFlow {nearest}; running on 2.12.1" in notice
    assert selected("2.12.1", "py310") == ("2.12", "3.10", ())
    assert selected("2.15.1", "py311") == ("2.15", "3.11", ())
    assert selected("2.16.2", "py310")[0] == "2.16"
    old_python = "tidemill: model parallelism does not run on Python 3.9; running on 3.10 instead"
    assert selected("2.15.1", "py39") == ("2.15", "3.10", (old_python,))


def test_endpoints_run_on_the_default_with_a_notice():
    assert Frameworks().of_serving("tensorflow-inference:2.21.0-cpu").notices == ()
    assert Frameworks().of_serving("").notices == ()
    old = Frameworks().of_serving("tensorflow-inference:1.15.0-cpu")
    assert old.framework.version == DEFAULT_TENSORFLOW
    assert old.notices == ("tidemill: endpoints run on TensorFlow 2.21.0; 1.15.0 was asked for",)


def training(uri: str) -> dict:
    return {"AlgorithmSpecification": {"TrainingImage": uri}}


@pytest.mark.parametrize("version", ["2.22.0", "3.0.0", "9.9"])
def test_a_version_above_the_newest_is_refused_and_the_nearest_is_named(version):
    with pytest.raises(ValueError, match=r"the newest is 2\.21: ask for framework_version '2\.21'"):
        select(image(version, "py313"))
    with pytest.raises(ValueError, match=f"no TensorFlow {version} here"):
        Frameworks().of_serving(f"tensorflow-inference:{version}-cpu")


def test_images_of_other_frameworks_are_refused_with_what_exists():
    for uri in ("mxnet-training:1.9.0-cpu-py38", "a/pytorch-inference:2.1.0-gpu-py310"):
        for refused in (lambda: Frameworks().of_training(training(uri)), lambda: Frameworks().of_serving(uri)):  # noqa: B023
            with pytest.raises(ValueError, match=r"there are environments of TensorFlow 2\.21, 2\.20"):
                refused()


@pytest.mark.parametrize(
    ("uri", "release", "python"),
    [
        ("mine:latest", "2.21.0", None),
        ("mine:1.0", "2.21.0", None),
        ("mine:37.2", "2.21.0", None),
        ("mine:2.15.0-py310", "2.15.1", "3.10"),
        ("sagemaker-base-python-310:1.0", "2.20.0", "3.10"),
        ("mine:tf-2.15", "2.15.1", None),
        ("mine:latest-py38", "2.6.5", "3.8"),
        ("tensorflow/tensorflow:nightly", "2.21.0", None),
        ("tensorflow/tensorflow:2.15.0-gpu", "2.15.1", None),
    ],
)
def test_an_image_of_ones_own_selects_by_its_tag_and_the_first_line_says_what_runs_instead(uri, release, python):
    found = Frameworks().of_training(training(uri))
    assert (found.framework.release, found.python) == (release, python)
    assert found.notices[0] == (
        f"tidemill: the image of the request is not run; TensorFlow {release} runs instead"
        " (the setting images can select another environment)"
    )


def test_the_setting_images_maps_names_to_environments():
    chosen = {
        "mine:*": MappedImage("tf-2.15"),
        "*/pytorch-training:*": MappedImage("tf-2.6"),
        "mine:new": MappedImage("tf-2.21-gpu"),
    }
    frameworks = Frameworks(chosen)
    found = frameworks.of_training(training("1.dkr.ecr.eu-west-1.amazonaws.com/mine:latest-py310"))
    assert (found.framework.version, found.python, found.notices[0]) == (
        "2.15",
        "3.10",
        "tidemill: the image of the request is not run; TensorFlow 2.15.1 runs instead"
        " (the setting images selects tf-2.15)",
    )
    assert frameworks.of_training(training("a/pytorch-training:2.1.0-gpu-py37")).framework.version == "2.6"
    assert frameworks.of_training(training("mine:new"), gpus=1).uses_gpus
    assert frameworks.of_training(training("tensorflow-training:2.12.0-cpu-py310")).framework.version == "2.12"
    with pytest.raises(ValueError, match=r"no environment 'tf-9'; expected one of tf-2\.21, "):
        MappedImage("tf-9")


def test_each_version_of_the_list_has_a_lock_of_its_release_and_there_is_no_other_lock():
    locks = Path(builder.__file__).parent / "locks"
    scripts = {"tf-1.15-py27": f"tensorflow=={PYTHON_2_RELEASE} "}
    assert {path.stem for path in locks.iterdir()} == {*ENVIRONMENTS, *scripts, "aws-cli", "virtualenv"}
    assert all(f"\n{pin}" in (locks / f"{name}.txt").read_text() for name, pin in scripts.items())
    for name, framework in ENVIRONMENTS.items():
        lines = (locks / f"{name}.txt").read_text().splitlines()
        packages = ("scikit-learn==",) if framework is SCIKIT_LEARN else ("tensorflow==", "tensorflow-cpu==")
        pinned = [line.split()[0] for line in lines if line.startswith(packages)]
        assert pinned
        assert {pin.partition("==")[2] for pin in pinned} == {framework.release}
        assert any(line.startswith("nvidia-cudnn") for line in lines) == (name != framework.environment)


def test_a_framework_has_its_names():
    framework = Framework("2.15.1", ("3.9",))
    assert (framework.version, framework.environment, framework.number) == ("2.15", "tf-2.15", (2, 15))
    assert framework.has_model_parallelism
    assert framework.has_mpi
    assert not SCIKIT_LEARN.has_mpi


@pytest.mark.parametrize(
    ("image", "notices"),
    [
        ("sagemaker-scikit-learn:1.2-1-cpu-py3", (f"{SCIKIT_LEARN.release}; scikit-learn 1.2 was asked for",)),
        (f"sagemaker-scikit-learn:{SCIKIT_LEARN.version}-1-cpu-py3", ()),
        ("acme.example/sklearn", (f"{SCIKIT_LEARN.release}; the image names no version",)),
    ],
)
def test_jobs_with_an_image_of_scikit_learn_run_on_the_newest(image: str, notices: tuple[str, ...]) -> None:
    for frameworks in (ProcessingFrameworks(), Frameworks()):
        found = frameworks.of_training(training(image))
        assert found.framework is SCIKIT_LEARN
        assert found.notices == tuple(f"tidemill: running on scikit-learn {notice}" for notice in notices)
    with pytest.raises(ValueError, match="image of scikit-learn"):
        Frameworks().of_serving(image)


def test_processing_jobs_refuse_images_of_which_nothing_is_known_unless_they_are_mapped() -> None:
    for image, why in (("acme.example/prepare:1", "what it holds is unknown"), ("x/xgboost:1", "image of XGBoost")):
        with pytest.raises(ValueError, match=rf"{why}.* TensorFlow \(2\.21, .* and of scikit-learn"):
            ProcessingFrameworks().of_training(training(image))
    mapped = ProcessingFrameworks({"prepare*": MappedImage("tf-2.15"), "*scikit*": MappedImage("tf-2.12")})
    assert mapped.of_training(training("acme.example/prepare:1")).framework.version == "2.15"
    assert mapped.of_training(training("sagemaker-scikit-learn:1.2-1-cpu-py3")).framework.version == "2.12"
    assert mapped.of_training(training("tensorflow-training:2.19.0-cpu-py310")).framework.version == "2.19"
