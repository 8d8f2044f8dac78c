"""Says to a script on Python 2 that there is no Pipe mode for it."""

raise ImportError(
    "sagemaker_tensorflow (Pipe mode) is not here for Python 2: use input_mode='File', or port the script and ask for "
    "py_version='py3'"
)
