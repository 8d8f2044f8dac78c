"""What scripts for Keras 2 call and Keras 3 has no more: a small set, put in by `smp.init()`, and taken out again.

| call | shim |
|---|---|
| `optimizer.get_gradients(loss, variables)`, `optimizer.compute_gradients(loss, variables)` | `gradients` |
| `optimizer.variables()`, beside `optimizer.variables` | `variables_list` |
| `keras.optimizers.legacy.Adam(lr=..., decay=...)` and its siblings | `legacy_optimizers` |
| `metric.reset_states()` | `reset_states` |
| `keras.models.load_model(directory)` of a SavedModel | `saved_model` |
| a learning rate schedule with `name=None` | `schedule_names` |

`SMP_KERAS2_COMPAT=0` leaves it out, `uninstall()` takes it out. With tf_keras the gradients alone are needed. A name
that a script has imported before `smp.init()` (`from keras.models import load_model`) keeps its old meaning; methods
do not, since they are found when they are called.
"""

from smdistributed.modelparallel.tensorflow.keras2.compatibility import SWITCH, install, is_installed, uninstall

__all__ = ["SWITCH", "install", "is_installed", "uninstall"]
