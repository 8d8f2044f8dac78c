"""The limits of S3 at their ends: the largest value that is accepted, and the smallest that is refused."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill.core.clock import SystemClock
from tidemill.errors import AwsError
from tidemill.services.s3.intention import attributes_of, check_tags
from tidemill.services.s3.listing import ListOperations
from tidemill.services.s3.multipart import MultipartOperations
from tidemill.services.s3.writing import WriteOperations
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects.index import ObjectAttributes, check_key
from tidemill.store.objects.schema import objects as object_table
from tidemill.store.objects.schema import uploads as upload_table
from tidemill.store.objects.store import ObjectStore
from tidemill.store.objects.upload_index import UploadInfo
from tidemill.store.objects.uploads import check_part_number
from tidemill.wire.exchange import Reply


def refused(call: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(AwsError) as raised:
        call(*arguments)
    return raised.value.code


@pytest.mark.parametrize("letter", ["k", "ü"])
def test_a_key_has_at_most_1024_bytes(letter: str) -> None:
    key = letter * (1024 // len(letter.encode()))
    check_key(key)
    assert refused(check_key, f"{key}k") == "KeyTooLongError"


def test_parts_have_the_numbers_1_to_10000() -> None:
    for number in (1, 10_000):
        check_part_number(number)
    for number in (-1, 0, 10_001):
        assert refused(check_part_number, number) == "InvalidArgument"


def test_user_metadata_has_at_most_2048_bytes() -> None:
    def put(value: str) -> ObjectAttributes:
        return attributes_of({"Metadata": {"name": value}}, {}, {})

    assert put("x" * 2044).metadata == {"name": "x" * 2044}
    assert refused(put, "x" * 2045) == "MetadataTooLarge"
    assert refused(put, "x" * 2043 + "ü") == "MetadataTooLarge"


def test_an_object_has_at_most_10_tags_of_128_and_256_characters() -> None:
    ten = [(f"k{number}", "") for number in range(10)]
    assert len(check_tags(ten)) == 10
    assert refused(check_tags, [*ten, ("more", "")]) == "InvalidTag"
    assert refused(check_tags, [("k", "1"), ("k", "2")]) == "InvalidTag"
    check_tags([("k" * 128, "v" * 256)])
    for pair in (("k" * 129, ""), ("", "v"), ("k", "v" * 257)):
        assert refused(check_tags, [pair]) == "InvalidTag"


def test_a_page_and_a_deletion_have_at_most_1000_entries(tmp_path: Path) -> None:
    async def run() -> None:
        with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
            store = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
            await store.ensure_bucket("bucket")
            first = await store.put_bytes("bucket", "k0000", b"")
            rows = [replace(first, key=f"k{number:04}").to_row() for number in range(1, 1001)]
            upload = UploadInfo(upload_id="u", bucket="bucket", key="k", initiated_ms=1, attributes=ObjectAttributes())
            uploads = [replace(upload, upload_id=f"u{number:04}").to_row() for number in range(1001)]
            await database.write(lambda c: c.execute(object_table.insert(), rows) and None)
            await database.write(lambda c: c.execute(upload_table.insert(), uploads) and None)
            context: Any = SimpleNamespace(writer=None, path=None)
            lists, multipart = ListOperations(store, context), MultipartOperations(store, context)
            for wanted, shown in ((None, 1000), (999, 999), (1000, 1000), (1001, 1000), (5000, 1000), (0, 0)):
                limit = {} if wanted is None else {"MaxKeys": wanted, "MaxUploads": wanted}
                answer = await lists.list_objects_v2({"Bucket": "bucket", **limit}, context)
                page = answer.members if isinstance(answer, Reply) else answer
                assert (len(page["Contents"]), page["IsTruncated"]) == (shown, shown > 0)
                assert len((await lists.list_objects({"Bucket": "bucket", **limit}, context))["Contents"]) == shown
                assert (
                    len((await multipart.list_multipart_uploads({"Bucket": "bucket", **limit}, context))["Uploads"])
                    == shown
                )
            with pytest.raises(AwsError, match="must be 0 or more"):
                await lists.list_objects_v2({"Bucket": "bucket", "MaxKeys": -1}, context)
            delete = WriteOperations(store, context, context).delete_objects
            named = [{"Key": f"k{number:04}"} for number in range(1001)]
            for objects in ([], named):
                with pytest.raises(AwsError, match=f"names {len(objects)} objects; 1 to 1000 are allowed"):
                    await delete({"Bucket": "bucket", "Delete": {"Objects": objects}}, context)
            deleted = await delete({"Bucket": "bucket", "Delete": {"Objects": named[:1000]}}, context)
            assert (len(deleted["Deleted"]), deleted["Errors"]) == (1000, [])
            await store.close()

    asyncio.run(run())
