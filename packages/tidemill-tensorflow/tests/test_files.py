"""`s3://` paths in TensorFlow's functions that take a path."""

import os
from pathlib import Path
from typing import Any

import boto3
import pytest


def keys(s3: Any, bucket: str) -> dict[str, int]:
    return {found["Key"]: found["Size"] for found in s3.list_objects_v2(Bucket=bucket).get("Contents", [])}


def test_gfile_reads_and_writes_objects(tf: Any, s3: Any, bucket: str) -> None:
    gfile = tf.io.gfile
    with gfile.GFile(f"s3://{bucket}/a/text", "w") as file:
        file.write("first\nsecond\n")
    assert s3.get_object(Bucket=bucket, Key="a/text")["Body"].read() == b"first\nsecond\n"
    with gfile.GFile(f"s3://{bucket}/a/text", "a") as file:
        file.write("third\n")
    with gfile.GFile(f"s3://{bucket}/a/text") as file:
        assert list(file) == ["first\n", "second\n", "third\n"]
        file.seek(6)
        assert file.read(6) == "second"
    status = gfile.stat(f"s3://{bucket}/a/text")
    assert (status.length, status.is_directory) == (19, False)
    head = s3.head_object(Bucket=bucket, Key="a/text")
    assert status.mtime_nsec // 10**9 == int(head["LastModified"].timestamp())


def test_an_empty_file_is_an_object(tf: Any, s3: Any, bucket: str) -> None:
    with tf.io.gfile.GFile(f"s3://{bucket}/empty", "w") as file:
        file.write("")
    assert keys(s3, bucket) == {"empty": 0}
    assert tf.io.gfile.GFile(f"s3://{bucket}/empty", "rb").read() == b""


def test_directories_are_what_keys_begin_with(tf: Any, s3: Any, bucket: str) -> None:
    gfile = tf.io.gfile
    for key in ("d/one", "d/e/two", "d/e/f/three", "dd"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    assert sorted(gfile.listdir(f"s3://{bucket}/d")) == ["e", "one"]
    assert sorted(gfile.listdir(f"s3://{bucket}")) == ["d", "dd"]
    assert [gfile.isdir(f"s3://{bucket}/{path}") for path in ("d", "d/", "dd", "none")] == [True, True, False, False]
    assert [gfile.exists(f"s3://{bucket}/{path}") for path in ("d", "dd", "d/on")] == [True, True, False]
    assert sorted(gfile.glob(f"s3://{bucket}/d/*")) == [f"s3://{bucket}/d/e", f"s3://{bucket}/d/one"]
    walked = [
        (path.removeprefix(f"s3://{bucket}/"), sorted(files)) for path, _, files in gfile.walk(f"s3://{bucket}/d")
    ]
    assert walked == [("d", ["one"]), ("d/e", ["two"]), ("d/e/f", ["three"])]
    gfile.makedirs(f"s3://{bucket}/new/deep")
    assert gfile.isdir(f"s3://{bucket}/new/deep") and "new/deep" not in keys(s3, bucket)


def test_a_large_object_is_renamed_by_one_request(tf: Any, s3: Any, bucket: str) -> None:
    """By one request, the service copies no bytes. After a multipart copy, the ETag would end with the part count."""
    content = os.urandom(1 << 20) * 40
    with tf.io.gfile.GFile(f"s3://{bucket}/old", "wb") as file:
        file.write(content)
    written = s3.head_object(Bucket=bucket, Key="old")["ETag"]
    tf.io.gfile.rename(f"s3://{bucket}/old", f"s3://{bucket}/new")
    assert s3.head_object(Bucket=bucket, Key="new")["ETag"] == written
    with tf.io.gfile.GFile(f"s3://{bucket}/new", "rb") as file:
        assert file.read() == content


def test_renames_copies_and_deletions(tf: Any, s3: Any, bucket: str) -> None:
    gfile = tf.io.gfile
    for key in ("d/one", "d/e/two", "f"):
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    for path in ("d", "d/", "f"):
        gfile.rename(f"s3://{bucket}/{path}", f"s3://{bucket}/{path}", overwrite=True)
    assert set(keys(s3, bucket)) == {"d/one", "d/e/two", "f"}, "nothing moves to where it is"
    gfile.rename(f"s3://{bucket}/d", f"s3://{bucket}/moved")
    assert set(keys(s3, bucket)) == {"moved/one", "moved/e/two", "f"}
    with pytest.raises(tf.errors.AlreadyExistsError):
        gfile.rename(f"s3://{bucket}/f", f"s3://{bucket}/moved/one")
    gfile.rename(f"s3://{bucket}/f", f"s3://{bucket}/moved/one", overwrite=True)
    gfile.copy(f"s3://{bucket}/moved/one", f"s3://{bucket}/copy")
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == b"f"
    gfile.remove(f"s3://{bucket}/copy")
    gfile.rmtree(f"s3://{bucket}/moved")
    assert keys(s3, bucket) == {}


def test_errors_are_tensorflows_with_s3s_words(tf: Any, bucket: str) -> None:
    gfile = tf.io.gfile
    with pytest.raises(tf.errors.NotFoundError, match=f"s3://{bucket}/none: there is no such object"):
        gfile.GFile(f"s3://{bucket}/none", "rb").read()
    with pytest.raises(tf.errors.NotFoundError, match="NoSuchBucket: "), gfile.GFile("s3://no-such-one/k", "w") as file:
        file.write("x")
    with pytest.raises(tf.errors.InvalidArgumentError, match="names no bucket; paths have the form s3://BUCKET/KEY"):
        gfile.stat("s3:///key")
    with pytest.raises(tf.errors.NotFoundError):
        gfile.rename(f"s3://{bucket}/none", f"s3://{bucket}/other")


def test_checkpoints_and_saved_models(tf: Any, bucket: str) -> None:
    before = tf.train.Checkpoint(v=tf.Variable(tf.random.normal([1000])), w=tf.Variable(3))
    manager = tf.train.CheckpointManager(before, f"s3://{bucket}/ckpt", max_to_keep=2)
    for _ in range(3):
        manager.save()
    after = tf.train.Checkpoint(v=tf.Variable(tf.zeros([1000])), w=tf.Variable(0))
    after.restore(tf.train.latest_checkpoint(f"s3://{bucket}/ckpt")).assert_consumed()
    assert (after.v.numpy() == before.v.numpy()).all()
    assert sorted(tf.io.gfile.glob(f"s3://{bucket}/ckpt/*.index")) == [
        f"s3://{bucket}/ckpt/ckpt-2.index",
        f"s3://{bucket}/ckpt/ckpt-3.index",
    ]

    model = tf.Module()
    model.f = tf.function(lambda x: 2.0 * x, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(model, f"s3://{bucket}/export/1", signatures=model.f)
    loaded = tf.saved_model.load(f"s3://{bucket}/export/1").signatures["serving_default"]
    assert loaded(tf.constant([3.0]))["output_0"].numpy() == [6.0]


def test_records_are_read_by_many_threads(tf: Any, bucket: str) -> None:
    names = [f"s3://{bucket}/data/{shard:02}.tfr" for shard in range(8)]
    for shard, name in enumerate(names):
        with tf.io.TFRecordWriter(name) as writer:
            for number in range(300):
                writer.write(b"%d-%d " % (shard, number) * 200)
    files = tf.data.Dataset.list_files(f"s3://{bucket}/data/*.tfr", seed=1)
    records = tf.data.TFRecordDataset(files, num_parallel_reads=8).prefetch(100)
    found = {record.numpy().split()[0].decode() for record in records}
    assert found == {f"{shard}-{number}" for shard in range(8) for number in range(300)}


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of Keras with NumPy 2
def test_keras_trains_with_all_its_files_in_s3(tf: Any, s3: Any, bucket: str) -> None:
    keras = tf.keras
    x = tf.random.normal([64, 4])
    y = tf.reduce_sum(x, 1)

    def fit(epochs: int) -> Any:
        model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        callbacks = [
            keras.callbacks.BackupAndRestore(f"s3://{bucket}/backup", delete_checkpoint=False),
            keras.callbacks.TensorBoard(f"s3://{bucket}/logs", write_graph=False),
        ]
        return model.fit(x, y, epochs=epochs, verbose=0, callbacks=callbacks)

    assert fit(2).epoch == [0, 1]
    assert fit(3).epoch == [2]
    events = [key for key in keys(s3, bucket) if key.startswith("logs/train/events")]
    tags = {
        value.tag
        for key in events
        for event in tf.compat.v1.train.summary_iterator(f"s3://{bucket}/{key}")
        for value in event.summary.value
    }
    assert "epoch_loss" in tags


def test_summaries_can_be_seen_as_soon_as_they_are_flushed(tf: Any, s3: Any, bucket: str) -> None:
    writer = tf.summary.create_file_writer(f"s3://{bucket}/live")
    with writer.as_default():
        for step in range(3):
            tf.summary.scalar("loss", 1.0, step=step)
            writer.flush()
            (key,) = keys(s3, bucket)
            steps = [event.step for event in tf.compat.v1.train.summary_iterator(f"s3://{bucket}/{key}")]
            assert steps[1:] == list(range(step + 1))
    writer.close()


def test_a_large_file_is_uploaded_in_parts_and_goes_on_after_a_flush(tf: Any, s3: Any, bucket: str) -> None:
    path = f"s3://{bucket}/large"
    pieces = [os.urandom(size) for size in (20_000_000, 7, 30_000_000, 123)]
    with tf.io.gfile.GFile(path, "wb") as file:
        for number, piece in enumerate(pieces, 1):
            file.write(piece)
            file.flush()
            assert s3.head_object(Bucket=bucket, Key="large")["ContentLength"] == sum(map(len, pieces[:number]))
    with tf.io.gfile.GFile(path, "ab") as file:
        file.write(b"the end")
    assert tf.io.gfile.GFile(path, "rb").read() == b"".join(pieces) + b"the end"
    assert not s3.list_multipart_uploads(Bucket=bucket).get("Uploads")


def test_an_upload_that_cannot_be_removed_is_named(
    service: dict[str, str], s3: Any, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from botocore.exceptions import EndpointConnectionError

    from tidemill_tensorflow.s3.failures import FilesystemError
    from tidemill_tensorflow.s3.location import Location
    from tidemill_tensorflow.s3.writing import PART_SIZE, ObjectWriter

    def unreachable(request: Any, **_: Any) -> None:
        raise EndpointConnectionError(endpoint_url=request.url)

    broken = boto3.client("s3", endpoint_url=s3.meta.endpoint_url)
    for operation in ("UploadPart", "AbortMultipartUpload"):
        broken.meta.events.register(f"before-send.s3.{operation}", unreachable)
    writer = ObjectWriter(broken, Location(bucket, "large"), append=False)
    writer.append(memoryview(bytes(PART_SIZE + 1)))
    with pytest.raises(FilesystemError, match="Could not connect"):
        writer.close()
    (left,) = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    said = capsys.readouterr().err
    assert said.startswith(f"tidemill: the unfinished upload {left['UploadId']} of s3://{bucket}/large stays in S3")
    s3.abort_multipart_upload(Bucket=bucket, Key="large", UploadId=left["UploadId"])


def test_a_reader_refuses_an_object_that_was_replaced(tf: Any, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"a" * 3_000_000)
    with tf.io.gfile.GFile(f"s3://{bucket}/k", "rb") as file:
        assert file.read(10) == b"a" * 10
        s3.put_object(Bucket=bucket, Key="k", Body=b"b" * 3_000_000)
        with pytest.raises(tf.errors.FailedPreconditionError, match="PreconditionFailed"):
            file.read()


def test_any_reads_give_what_a_local_file_gives(tf: Any, s3: Any, bucket: str, tmp_path: Path) -> None:
    content = os.urandom(1_500_000)
    (tmp_path / "file").write_bytes(content)
    s3.put_object(Bucket=bucket, Key="file", Body=content)
    spans = [(0, 10), (10, 600_000), (5, 5), (1_499_990, 100), (1_500_000, 1), (600_010, 300_000), (0, 1_500_000)]
    with tf.io.gfile.GFile(f"s3://{bucket}/file", "rb") as remote, (tmp_path / "file").open("rb") as local:
        for start, length in spans:
            remote.seek(start)
            local.seek(start)
            assert remote.read(length) == local.read(length)
