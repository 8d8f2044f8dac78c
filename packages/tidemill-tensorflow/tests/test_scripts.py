"""Start and exit of whole scripts."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ENDLESS = """
import sys
import tensorflow as tf
bucket, end = sys.argv[1:]
for shard in range(4):
    with tf.io.TFRecordWriter(f"s3://{bucket}/{shard}") as writer:
        for _ in range(200):
            writer.write(b"x" * 1000)
files = tf.data.Dataset.list_files(f"s3://{bucket}/*").repeat()
records = iter(tf.data.TFRecordDataset(files, num_parallel_reads=4).prefetch(100))
for _ in range(50):
    next(records)
if end == "exit":
    sys.exit(7)
if end == "fork":
    import os
    if os.fork() == 0:
        os._exit(0 if len(tf.io.gfile.glob(f"s3://{bucket}/*")) == 4 else 1)
    print(os.wait()[1])
print("the end")
"""


def test_a_script_ends_while_threads_of_tensorflow_read(run_script: Any, bucket: str) -> None:
    ended = run_script(ENDLESS, bucket, "normally")
    assert (ended.returncode, ended.stdout) == (0, "the end\n"), ended.stderr
    assert run_script(ENDLESS, bucket, "exit").returncode == 7


def test_a_forked_child_has_its_own_connections(run_script: Any, bucket: str) -> None:
    ended = run_script(ENDLESS, bucket, "fork")
    assert (ended.returncode, ended.stdout) == (0, "0\nthe end\n"), ended.stderr


def test_a_killed_writer_leaves_no_object(run_script: Any, bucket: str, s3: Any) -> None:
    ended = run_script(
        f"""
import os, signal
import tensorflow as tf
file = tf.io.gfile.GFile("s3://{bucket}/half", "wb")
file.write(b"x" * 40_000_000)
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    assert ended.returncode == -9
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_without_the_library_the_script_runs_and_the_log_says_why(run_script: Any) -> None:
    text = "import tensorflow as tf; print(tf.io.gfile.exists('/'))"
    ended = run_script(text, TIDEMILL_NATIVE_DIR="/proc/nowhere", CXX="none")
    assert (ended.returncode, ended.stdout) == (0, "True\n")
    assert "tidemill: s3:// paths do not work inside TensorFlow: " in ended.stderr


def test_the_old_names_of_onednns_switches(run_script: Any) -> None:
    text = "import os, tensorflow as tf; print(os.environ.get('TF_ENABLE_ONEDNN_OPTS'))"
    ended = run_script(text, TF_DISABLE_MKL="1", TF_DISABLE_POOL_ALLOCATOR="1", TF_CPP_MIN_LOG_LEVEL="0")
    assert ended.stdout == "0\n"
    assert "TF_DISABLE_POOL_ALLOCATOR has no effect" in ended.stderr
    assert "oneDNN custom operations are on" not in ended.stderr


def test_nothing_is_loaded_before_tensorflow() -> None:
    text = "import sys; before = set(sys.modules); import tidemill_tensorflow.startup; import json;"
    text += "print(json.dumps(sorted(set(sys.modules) - before)))"
    found = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"TIDEMILL_TENSORFLOW": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = [name for name in json.loads(found.stdout) if name.startswith(("tidemill", "tensorflow", "boto"))]
    assert loaded == ["tidemill_tensorflow", "tidemill_tensorflow.activation", "tidemill_tensorflow.startup"]


def test_importing_tensorflow_io_is_enough_for_s3(run_script: Any, bucket: str) -> None:
    ended = run_script(
        f"""
import tensorflow_io as tfio
import tensorflow as tf
with tf.io.gfile.GFile("s3://{bucket}/x", "w") as file:
    file.write("text")
print(tf.io.gfile.GFile("s3://{bucket}/x").read(), hasattr(tfio, "image"))
try:
    tfio.audio
except AttributeError as error:
    print(error)
import tensorflow_io.arrow
"""
    )
    lines = ended.stdout.splitlines()
    assert lines[0] == "text False", ended.stderr
    assert lines[1].startswith("tensorflow_io.audio does not exist: tensorflow_io is not installed in this job")
    assert "tidemill: tensorflow_io is not installed. s3:// paths work without it" in ended.stderr
    assert "No module named 'tensorflow_io.arrow'" in ended.stderr
    assert ended.returncode == 1


def test_the_keras_that_tries_tensorflow_io_does_not_find_it(run_script: Any) -> None:
    ended = run_script(
        """
import types
import tensorflow as tf
module = types.ModuleType("keras.utils.audio_dataset")  # as Keras 2 does
exec("try:\\n  import tensorflow_io as tfio\\nexcept ImportError:\\n  tfio = None", module.__dict__)
import sys
print(module.tfio, "tensorflow_io" in sys.modules)
sys.stderr.write("of the script\\n")
import tensorflow_io
"""
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["None", "False"]
    before, after = ended.stderr.split("of the script")
    assert "tensorflow_io" not in before and "tensorflow_io is not installed" in after


def test_an_installed_tensorflow_io_is_left_alone(run_script: Any, tmp_path: Path) -> None:
    (tmp_path / "tensorflow_io").mkdir()
    (tmp_path / "tensorflow_io/__init__.py").write_text("real = True")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom tensorflow_io import real\nprint(real)"
    ended = run_script(script)
    assert ended.stdout == "True\n", ended.stderr
