"""Scripts that run on the machines of a cluster, whichever scheduler places them."""

DIGITS = """
    import hashlib, json, os
    import keras, tensorflow as tf
    from sklearn.datasets import load_digits

    several = len(json.loads(os.environ["SM_HOSTS"])) > 1
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else tf.distribute.get_strategy()
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.005), loss)
    model.fit(x[:1500], y[:1500], batch_size=100, epochs=6, verbose=0)
    digest = hashlib.sha256(b"".join(weights.tobytes() for weights in model.get_weights())).hexdigest()
    accuracy = float((model.predict(x[1500:], verbose=0).argmax(1) == y[1500:]).mean())
    found = {"replicas": strategy.num_replicas_in_sync, "accuracy": accuracy, "weights": digest}
    print("FOUND", json.dumps(found), flush=True)
    model.export(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""
STEPS = """
    import os, time
    from pathlib import Path
    directory = Path("/opt/ml/checkpoints")
    done = [int(file.name) for file in directory.glob("[0-9]*")]
    print("KEYS", *(os.environ[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")))
    print("FROM", max(done, default=0), flush=True)
    for step in range(max(done, default=0) + 1, 1000):
        (directory / f"{step}").write_text("x")
        time.sleep(0.2)
        if done and step > max(done) + 5:
            break
    print("END", flush=True)
"""
HOROVOD = """
    import hashlib, json, os
    import horovod.tensorflow as hvd
    import keras, tensorflow as tf
    from sklearn.datasets import load_digits

    hvd.init()
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    keras.utils.set_random_seed(hvd.rank())  # ranks begin with different weights
    model = keras.Sequential([keras.Input([64]), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(0.01)
    hvd.broadcast_variables(model.variables, root_rank=0)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images))
        tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

    own = slice(hvd.rank(), 1500, hvd.size())
    for _ in range(8):
        for first in range(0, 1500 // hvd.size(), 50):
            step(x[own][first : first + 50], y[own][first : first + 50])
    digest = hashlib.sha256(b"".join(each.numpy().tobytes() for each in model.trainable_variables)).hexdigest()
    accuracy = float((model(x[1500:]).numpy().argmax(1) == y[1500:]).mean())
    found = {"rank": hvd.rank(), "size": hvd.size(), "local_size": hvd.local_size(), "accuracy": accuracy}
    print("FOUND", json.dumps({**found, "host": os.environ["SM_CURRENT_HOST"], "weights": digest}), flush=True)
"""
CUT = """
    import json, os
    import tensorflow as tf
    from sklearn.datasets import load_digits
    import smdistributed.modelparallel.tensorflow as smp

    smp.init()
    x, y = load_digits(return_X_y=True)
    x, y = (x[:800] / 16).astype("float32"), y[:800]

    class Net(smp.DistributedModel):
        def __init__(self):
            super().__init__()
            seeds = [tf.keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2)]
            self.first = tf.keras.layers.Dense(32, activation="tanh", kernel_initializer=seeds[0])
            self.head = tf.keras.layers.Dense(10, kernel_initializer=seeds[1])

        def call(self, x):
            with smp.partition(0):
                x = self.first(x)
            with smp.partition(1):
                return self.head(x)

    model = Net()
    optimizer = tf.keras.optimizers.Adam(0.01)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @smp.step
    def forward_backward(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x))
        return tape.gradient(loss, model.trainable_variables), loss

    @tf.function
    def train_step(x, y):
        gradients, loss = forward_backward(x, y)
        gradients = [gradient.accumulate() for gradient in gradients]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss.reduce_mean()

    losses = [float(train_step(x[at : at + 100], y[at : at + 100])) for _ in range(5) for at in range(0, 800, 100)]
    held = sum(variable.shape.num_elements() for variable in smp.local_variables(model))
    assert smp.allgather("OBJECTS IN THE CLEAR", smp.WORLD) == ["OBJECTS IN THE CLEAR"] * 2
    found = {"rank": smp.rank(), "host": os.environ["SM_CURRENT_HOST"], "held": held, "losses": losses}
    print("FOUND", json.dumps(found), flush=True)
"""
HOROVOD_STEPS = """
    import json, time
    from pathlib import Path
    import horovod.tensorflow as hvd
    import numpy as np
    import tensorflow as tf

    hvd.init()
    directory = Path("/opt/ml/checkpoints")
    done = sorted(int(file.stem) for file in directory.glob("[0-9]*.npy"))
    weights = tf.Variable(np.load(directory / f"{done[-1]}.npy") if done else np.zeros(10, "float32"))
    last = int(hvd.broadcast(tf.constant(done[-1] if done else 0), 0))
    hvd.broadcast_variables([weights], 0)
    print("FROM", last, flush=True)
    for step in range(last + 1, 61):
        weights.assign_add(hvd.allreduce(tf.fill([10], float(step + hvd.rank()))))
        if hvd.rank() == 0:
            np.save(directory / f"{step}.npy", weights.numpy())
        time.sleep(0.2)
    print("FOUND", json.dumps({"rank": hvd.rank(), "weights": weights.numpy().tolist()}), flush=True)
"""
CUT_STEPS = """
    import json, time
    import tensorflow as tf
    import smdistributed.modelparallel.tensorflow as smp

    smp.init()

    class Net(smp.DistributedModel):
        def __init__(self):
            super().__init__()
            seeds = [tf.keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2)]
            self.first = tf.keras.layers.Dense(32, activation="tanh", kernel_initializer=seeds[0])
            self.head = tf.keras.layers.Dense(10, kernel_initializer=seeds[1])

        def call(self, x):
            with smp.partition(0):
                x = self.first(x)
            with smp.partition(1):
                return self.head(x)

    net, optimizer = Net(), tf.keras.optimizers.Adam(0.01)
    step, draw = tf.Variable(0, dtype=tf.int64, trainable=False), tf.random.Generator.from_seed(1)
    checkpoint = tf.train.Checkpoint(net=net, optimizer=optimizer, step=step, draw=draw)
    manager = smp.CheckpointManager(checkpoint, "/opt/ml/checkpoints", max_to_keep=None)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @smp.step
    def forward_backward(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, net(x))
        return tape.gradient(loss, net.trainable_variables), loss

    @tf.function
    def train_step(x, y):
        gradients, loss = forward_backward(x, y)
        gradients = [gradient.accumulate() for gradient in gradients]
        optimizer.apply_gradients(zip(gradients, net.trainable_variables))
        return loss.reduce_mean()

    manager.restore()
    print("FROM", int(step), flush=True)
    losses = {}
    while step < 60:
        loss = train_step(draw.normal([32, 8]), draw.uniform([32], maxval=10, dtype=tf.int64))
        step.assign_add(1)
        losses[int(step)] = float(loss)
        manager.save()
        time.sleep(0.2)
    print("FOUND", json.dumps({"rank": smp.rank(), "losses": losses}), flush=True)
"""


def under_mpi(per_machine: int = 1, **more: str) -> dict[str, str]:
    return {
        "sagemaker_mpi_enabled": "true",
        "sagemaker_mpi_num_of_processes_per_host": str(per_machine),
        **more,
    }
