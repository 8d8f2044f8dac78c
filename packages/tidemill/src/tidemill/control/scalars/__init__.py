"""The scalars in TensorBoard's event files of training jobs, also while they run. TensorFlow is not imported."""
