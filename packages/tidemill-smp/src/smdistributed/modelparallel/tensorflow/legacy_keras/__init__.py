"""Compatibility shims for calls of Keras 2 that Keras 3 removed. `smp.init()` installs them.

| call | shim |
|---|---|
| `optimizer.get_gradients(loss, variables)`, `optimizer.compute_gradients(loss, variables)` | `gradients` |
| `optimizer.variables()`, beside `optimizer.variables` | `earlier_calls` |
| `keras.optimizers.legacy.Adam(lr=..., decay=...)` and its siblings | `legacy_optimizers` |
| `metric.reset_states()` | `earlier_calls` |
| `keras.models.load_model(directory)` of a SavedModel | `saved_model` |
| a learning rate schedule with `name=None` | `earlier_calls` |

`SMP_KERAS2_COMPAT=0` disables them, `uninstall()` removes them. tf_keras only needs the gradients. A function that a
script imports before `smp.init()` (`from keras.models import load_model`) is not replaced; methods are, because they
are looked up when called.
"""

from smdistributed.modelparallel.tensorflow.legacy_keras.compatibility import SWITCH, install, is_installed, uninstall

__all__ = ["SWITCH", "install", "is_installed", "uninstall"]
