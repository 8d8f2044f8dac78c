"""Bucket operations."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.bucket_rules import BucketRules
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.s3.attributes import OWNER, bounded, timestamp
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.exchange import Context, Reply

BUCKETS_MAX = 10_000


class BucketOperations(Operations):
    """ListBuckets, CreateBucket, HeadBucket, DeleteBucket, GetBucketLocation."""

    def __init__(self, objects: ObjectStore, rules: BucketRules, *, region: str) -> None:
        self._objects = objects
        self._rules = rules
        self._region = region

    async def list_buckets(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """ListBuckets; a page begins after a name. All buckets are in one region."""
        prefix, after = request.get("Prefix") or "", request.get("ContinuationToken") or ""
        limit = bounded(request.get("MaxBuckets"), name="MaxBuckets", most=BUCKETS_MAX) or 1
        here = request.get("BucketRegion") in (None, self._region)
        buckets = self._objects.buckets() if here else ()
        wanted = [entry for entry in buckets if entry[0].startswith(prefix) and entry[0] > after]
        members: dict[str, Any] = {
            "Buckets": [
                {"Name": name, "CreationDate": timestamp(created_ms), "BucketRegion": self._region}
                for name, created_ms in wanted[:limit]
            ],
            "Owner": OWNER,
        }
        if prefix:
            members["Prefix"] = prefix
        if len(wanted) > limit:
            members["ContinuationToken"] = wanted[limit - 1][0]
        return members

    async def create_bucket(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """CreateBucket."""
        name = request["Bucket"]
        wanted = (request.get("CreateBucketConfiguration") or {}).get("LocationConstraint")
        if wanted and wanted not in (self._region, context.region):
            raise AwsError(
                f"the location constraint {wanted!r} does not fit this service, whose region is {self._region!r};"
                " give that one, or none",
                code="IllegalLocationConstraintException",
            )
        if not await self._objects.create_bucket(name):
            raise AwsError(
                f"the bucket {name!r} exists already and is yours; use it as it is",
                code="BucketAlreadyOwnedByYou",
                members={"BucketName": name},
            )
        return {"Location": f"/{name}"}

    async def head_bucket(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._objects.require_bucket(request["Bucket"])
        return {"BucketRegion": self._region}

    async def get_bucket_location(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """GetBucketLocation; for us-east-1 the answer is empty, as on AWS."""
        self._objects.require_bucket(request["Bucket"])
        return {} if self._region == "us-east-1" else {"LocationConstraint": self._region}

    async def delete_bucket(self, request: dict[str, Any], context: Context) -> Reply:
        """DeleteBucket."""
        name = request["Bucket"]
        created_ms = self._objects.bucket_created_ms(name)
        await self._objects.delete_bucket(name)
        if created_ms is not None:
            await self._rules.forget(name, created_ms=created_ms)
        return Reply(status=204)
