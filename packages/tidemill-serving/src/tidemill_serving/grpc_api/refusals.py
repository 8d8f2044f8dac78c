"""Methods that TF Serving has and this server has not: why, and what to call instead."""

_REFUSED = {
    "tensorflow.serving.PredictionService/PredictStreamed": (
        "PredictStreamed is not served: TensorFlow's SavedModels answer a request once, and only other kinds of models"
        " stream; call Predict"
    ),
    "tensorflow.serving.SessionService/": (
        "SessionService is not served: it runs any node of a model's graph; export a signature for the tensors, and"
        " call Predict"
    ),
    "tensorflow.ProfilerService/Profile": (
        "profiles are not served: start the server with --enable-profiler, which is tensorflow_model_server's default"
    ),
    "tensorflow.ProfilerService/": (
        "this method of the profiler is not served: call Profile, as tf.profiler.experimental.client.trace does"
    ),
    "tensorflow.ProfileAnalysis/": (
        "the analysis of profiles is not served: it needs TensorFlow's profiler; run TensorBoard on the profile's files"
    ),
}


def why_unimplemented(path: bytes) -> str:
    """Return the text that answers a call of a method that is not served.

    Args:
        path: ``/service/method``.
    """
    name = path.decode("utf-8", "replace")
    for refused, reason in _REFUSED.items():
        if name.removeprefix("/").startswith(refused):
            return reason
    return f"Method not found: {name}"
