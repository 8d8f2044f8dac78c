"""SageMaker Pipe mode for TensorFlow: training data streamed through FIFOs as a `tf.data.Dataset`.

```python
from sagemaker_tensorflow import PipeModeDataset

dataset = PipeModeDataset(channel="training", record_format="TFRecord")
```
"""

from typing import TYPE_CHECKING, Any

from sagemaker_tensorflow.errors import PipeModeDatasetException, PipeModeFallbackWarning

if TYPE_CHECKING:
    from sagemaker_tensorflow.dataset import PipeModeDataset

__all__ = ["PipeModeDataset", "PipeModeDatasetException", "PipeModeFallbackWarning"]


def __getattr__(name: str) -> Any:
    # TensorFlow takes seconds to import, and `python -m sagemaker_tensorflow.feed` does not need it.
    if name == "PipeModeDataset":
        from sagemaker_tensorflow.dataset import PipeModeDataset

        return PipeModeDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
