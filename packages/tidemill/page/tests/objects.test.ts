import assert from "node:assert/strict";
import { test } from "node:test";
import { folderPlace, jobOfArchive, listPage, objectLink, placeOf } from "../src/objects";
import { partBytes } from "../src/upload";

test("a page of a list has folders, objects and the token of the next page", () => {
  const page = listPage(
    "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b</NextContinuationToken>" +
      "<Contents><Key>a%2Fb+c%0A%3Cb%3E</Key><LastModified>2026-11-27T08:00:00.000Z</LastModified><Size>12</Size></Contents>" +
      "<CommonPrefixes><Prefix>a%2F..%2F</Prefix></CommonPrefixes></ListBucketResult>",
  );
  assert.deepEqual(page, {
    folders: ["a/../"],
    objects: [{ key: "a/b c\n<b>", size: 12, modified: "2026-11-27T08:00:00.000Z" }],
    next: "a&b",
  });
  assert.deepEqual(listPage("<ListBucketResult></ListBucketResult>"), { folders: [], objects: [] });
});

test("a folder is in the path of the address, unless a step of it would be lost there", () => {
  assert.deepEqual(folderPlace("b", ""), { to: ["data", "b"], query: {} });
  assert.deepEqual(folderPlace("b", "a/c d/"), { to: ["data", "b", "a", "c d"], query: {} });
  assert.deepEqual(folderPlace("b", "a//"), { to: ["data", "b", "a", ""], query: {} });
  assert.deepEqual(folderPlace("b", "a/../"), { to: ["data", "b"], query: { prefix: "a/../" } });
});

test("no upload has more than 10,000 parts", () => {
  const sizes = [17 * 1024 ** 2, 200 * 1024 ** 3, 5 * 1024 ** 4];
  for (const size of sizes) assert.ok(Math.ceil(size / partBytes(size)) <= 10_000);
  assert.equal(partBytes(100), 16 * 1024 ** 2);
});

test("an object's place is its bucket and its whole key", () => {
  assert.deepEqual(placeOf("s3://data/a b/%2e?x#y"), { bucket: "data", key: "a b/%2e?x#y" });
  for (const bucket of ["s3://data", "s3://data/"]) assert.deepEqual(placeOf(bucket), { bucket: "data", key: "" });
  for (const other of [undefined, "", "https://data/key", "javascript:s3://a/b"]) assert.equal(placeOf(other), undefined);
  // No step of a key is one of the address.
  assert.deepEqual(objectLink({ bucket: "data", key: "a/../b" }), { to: ["data", "data"], query: { object: "a/../b" } });
});

test("the job of an archive is in its address", () => {
  assert.equal(jobOfArchive("s3://data/out/digits-1/output/model.tar.gz"), "digits-1");
  assert.equal(jobOfArchive("s3://data/model.tar.gz"), undefined);
});
