"""Models made by old versions of TensorFlow: ``python old_models.py DIRECTORY``. Python 3.7 is enough.

TensorFlow 1.15 saves sessions by each of its functions, estimators by ``export_saved_model``, and Keras. Later versions
save Keras models in the form of SavedModels, modules, and estimators.
"""

import inspect
import os
import sys

if not hasattr(inspect, "getargspec"):  # estimators of TensorFlow 2.12 call it, and Python 3.11 does not have it
    inspect.getargspec = inspect.getfullargspec
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from recording import record, save_all

v1 = tf.compat.v1
IS_1 = tf.__version__.startswith("1.")
WORDS = ["ebb", "flow", "slack"]
SEED = 7


def rows(*shape):
    return np.random.RandomState(0).random_sample(shape).astype(np.float32)


def place(directory, name):
    return os.path.join(directory, name, "1")


def in_session(build):
    """Return a function that saves what ``build(session, path)`` builds in a new graph and saves; it returns feeds."""

    def save(directory, name):
        with v1.Graph().as_default(), v1.Session() as session:
            v1.set_random_seed(SEED)
            feeds = build(session, place(directory, name))
        record(directory, name, feeds)

    return save


# Sessions


def simple_save(session, path):
    x = v1.placeholder(tf.float32, [None, 3], name="x")
    weight = v1.get_variable("weight", [3, 2], use_resource=False)
    y = tf.matmul(x, weight, name="y")
    session.run(v1.global_variables_initializer())
    v1.saved_model.simple_save(session, path, {"x": x}, {"y": y})
    return {"x": rows(2, 3)}


def convolutions(session, path):
    """Save layers of TensorFlow 1 with batch normalization and a placeholder that switches dropout."""
    image = v1.placeholder(tf.float32, [None, 8, 8, 3], name="image")
    training = v1.placeholder_with_default(False, [], name="training")
    x = v1.layers.conv2d(image, 4, 3, activation=tf.nn.relu)
    x = v1.layers.batch_normalization(x, training=training)
    x = v1.layers.dropout(v1.layers.flatten(x), 0.5, training=training)
    logits = v1.layers.dense(x, 5)
    session.run(v1.global_variables_initializer())
    builder = v1.saved_model.Builder(path)
    signature = v1.saved_model.predict_signature_def(
        {"image": image}, {"class": tf.argmax(logits, 1), "probabilities": tf.nn.softmax(logits)}
    )
    builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature}, strip_default_attrs=True)
    builder.save()
    return {"image": rows(2, 8, 8, 3)}


def sequences(session, path):
    """Save a dynamic loop over cells, and a beam of the best steps."""
    steps = v1.placeholder(tf.float32, [None, None, 4], name="steps")
    lengths = v1.placeholder(tf.int32, [None], name="lengths")
    cell = v1.nn.rnn_cell.MultiRNNCell([v1.nn.rnn_cell.LSTMCell(5), v1.nn.rnn_cell.GRUCell(5)])
    outputs, state = v1.nn.dynamic_rnn(cell, steps, sequence_length=lengths, dtype=tf.float32)
    session.run(v1.global_variables_initializer())
    v1.saved_model.simple_save(
        session, path, {"steps": steps, "lengths": lengths}, {"outputs": outputs, "last": state[1]}
    )
    return {"steps": rows(2, 6, 4), "lengths": np.array([6, 3], np.int32)}


def table(session, path, as_main_op):
    """Save a table that is filled from an asset when the model is loaded."""
    file = path + ".words.txt"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(file, "w") as opened:
        opened.write("\n".join(WORDS) + "\n")
    word = v1.placeholder(tf.string, [None], name="word")
    source = tf.lookup.TextFileInitializer(
        tf.constant(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    found = tf.lookup.StaticHashTable(source, -1).lookup(word)
    signature = v1.saved_model.predict_signature_def({"word": word}, {"id": found})
    builder = v1.saved_model.Builder(path)
    builder.add_meta_graph_and_variables(
        session,
        ["serve"],
        {"serving_default": signature},
        assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
        **{"main_op" if as_main_op else "legacy_init_op": v1.tables_initializer()},
    )
    builder.save()
    os.remove(file)
    return {"word": np.array(["slack", "unknown"], object)}


def table_by_main_op(session, path):
    return table(session, path, True)


def table_by_legacy_init_op(session, path):
    return table(session, path, False)


def partitioned(session, path):
    """Save an embedding that is split over variables, as parameter servers have it."""
    number = v1.placeholder(tf.int64, [None], name="number")
    with v1.variable_scope("embedding", partitioner=v1.fixed_size_partitioner(3)):
        weights = v1.get_variable("weights", [10, 4])
    y = v1.nn.embedding_lookup(weights, number, partition_strategy="div")
    session.run(v1.global_variables_initializer())
    v1.saved_model.simple_save(session, path, {"number": number}, {"vector": y})
    return {"number": np.array([0, 5, 9])}


# Estimators


def columns():
    column = tf.feature_column
    town = column.categorical_column_with_vocabulary_list("town", WORDS, num_oov_buckets=1)
    age = column.numeric_column("age")
    wide = [town, column.bucketized_column(age, [2.0, 5.0])]
    return wide, [age, column.embedding_column(town, 3), column.indicator_column(town)]


def train_input():
    features = {"age": 10 * rows(64, 1), "town": np.array([[WORDS[index % 3]] for index in range(64)])}
    labels = (features["age"][:, 0] > 5).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((features, labels)).repeat(2).batch(16)


def estimator(make, parsing):
    """Return a function that trains and exports an estimator, which takes Examples or plain tensors."""

    def save(directory, name):
        wide, deep = columns()
        config = tf.estimator.RunConfig(tf_random_seed=SEED)
        trained = make(wide, deep, config).train(train_input)
        if parsing:
            spec = tf.feature_column.make_parse_example_spec(wide + deep)
            receiver = tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)
        else:
            with v1.Graph().as_default():  # only their types and shapes are used
                raw = {"age": v1.placeholder(tf.float32, [None, 1]), "town": v1.placeholder(tf.string, [None, 1])}
            receiver = tf.estimator.export.build_raw_serving_input_receiver_fn(raw)
        exported = trained.export_saved_model(os.path.join(directory, name), receiver)
        os.rename(exported if isinstance(exported, str) else exported.decode(), place(directory, name))
        people = [(1.0, "ebb"), (9.0, "nowhere")]
        if parsing:
            feeds = {"inputs": np.array([example(age, town) for age, town in people], object)}
            record(directory, name, feeds)
        else:
            ages, towns = zip(*people)
            feeds = {"age": np.array(ages, np.float32)[:, None], "town": np.array(towns, object)[:, None]}
            record(directory, name, feeds, "predict")

    return save


def example(age, town):
    features = {
        "age": tf.train.Feature(float_list=tf.train.FloatList(value=[age])),
        "town": tf.train.Feature(bytes_list=tf.train.BytesList(value=[town.encode()])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def linear(wide, deep, config):
    return tf.estimator.LinearClassifier(wide, config=config)


def deep_network(wide, deep, config):
    return tf.estimator.DNNClassifier([8], deep, config=config)


def wide_and_deep(wide, deep, config):
    return tf.estimator.DNNLinearCombinedClassifier(
        linear_feature_columns=wide, dnn_feature_columns=deep, dnn_hidden_units=[6], config=config
    )


# Keras and modules


def keras_model(build, shape):
    """Return a function that saves a model of Keras in the form of a SavedModel."""

    def save(directory, name):
        v1.set_random_seed(SEED) if IS_1 else tf.random.set_seed(SEED)
        model = build(tf.keras.layers)
        if IS_1:
            v1.keras.experimental.export_saved_model(model, place(directory, name), serving_only=True)
        else:
            model.save(place(directory, name), save_format="tf")
        record(directory, name, {model.input_names[0]: rows(2, *shape)})

    return save


def keras_dense(layers):
    model = tf.keras.Sequential([layers.Dense(4, activation="tanh", input_shape=(3,)), layers.Dense(2)])
    model.compile("adam", "mse")
    model.fit(rows(8, 3), rows(8, 2), verbose=0)
    return model


def keras_images(layers):
    image = tf.keras.Input((8, 8, 3))
    x = layers.BatchNormalization()(layers.SeparableConv2D(4, 3, activation="relu")(image))
    skipped = layers.Add()([x, layers.DepthwiseConv2D(3, padding="same")(x)])
    return tf.keras.Model(image, layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling2D()(skipped)))


def keras_sequences(layers):
    steps = tf.keras.Input((5, 3))
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(steps)
    return tf.keras.Model(steps, layers.Dense(2)(layers.GRU(3)(layers.Attention()([x, x]))))


class Module(tf.Module):
    def __init__(self):
        super(Module, self).__init__()
        self.weight = tf.Variable(rows(3, 2))
        source = tf.lookup.KeyValueTensorInitializer(WORDS, tf.range(3, dtype=tf.int64))
        self.table = tf.lookup.StaticHashTable(source, -1)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([None], tf.string)])
    def predict(self, x, word):
        return {"y": tf.matmul(x, self.weight), "id": self.table.lookup(word)}


def module(directory, name):
    made = Module()
    tf.saved_model.save(made, place(directory, name), signatures={"serving_default": made.predict})
    record(directory, name, {"x": rows(2, 3), "word": np.array(["flow", "x"], object)})


SESSIONS = (simple_save, convolutions, sequences, table_by_main_op, table_by_legacy_init_op, partitioned)
ESTIMATORS = {"linear": linear, "deep": deep_network, "wide_and_deep": wide_and_deep}  # TensorFlow 2.21 has no trees
MODELS = {
    "keras_dense": keras_model(keras_dense, (3,)),
    "keras_images": keras_model(keras_images, (8, 8, 3)),
    "keras_sequences": keras_model(keras_sequences, (5, 3)),
}
if IS_1:
    MODELS.update({each.__name__: in_session(each) for each in SESSIONS})
else:
    MODELS["module"] = module
for title, make in ESTIMATORS.items():
    MODELS["estimator_" + title] = estimator(make, True)
MODELS["estimator_raw"] = estimator(wide_and_deep, False)

if __name__ == "__main__":
    prefix = "tf_" + ".".join(tf.__version__.split(".")[:2]) + "_"
    named = {prefix + name: save for name, save in MODELS.items()}
    save_all(named, sys.argv[1], sys.argv[2:])
