"""`create_trial`, which reads saved tensors: there are none."""


def create_trial(path: str, *args: object, **options: object) -> None:
    """Raise NotImplementedError: the stand-in saves no tensors that a trial could read."""
    raise NotImplementedError(
        f"smdebug.create_trial({path!r}): tidemill's stand-in for smdebug saves no tensors; read TensorBoard's event"
        " files, or put smdebug into requirements.txt"
    )
