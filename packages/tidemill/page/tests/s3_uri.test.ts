import assert from "node:assert/strict";
import { test } from "node:test";
import { leavesOf } from "../src/json_leaves";
import { jobOfArchive, objectOf, pathOfObject } from "../src/s3_uri";

test("an object's place is its bucket and its whole key", () => {
  assert.deepEqual(objectOf("s3://data/a b/%2e?x#y"), { bucket: "data", key: "a b/%2e?x#y" });
  assert.deepEqual(pathOfObject({ bucket: "data", key: "a/b" }), ["data", "data", "a", "b"]);
  for (const other of [undefined, "", "s3://data", "s3://data/", "https://data/key", "javascript:s3://a/b"]) {
    assert.equal(objectOf(other), undefined);
  }
});

test("the job of an archive is in its address", () => {
  assert.equal(jobOfArchive("s3://data/out/digits-1/output/model.tar.gz"), "digits-1");
  assert.equal(jobOfArchive("s3://data/model.tar.gz"), undefined);
});

test("leaves of JSON have their paths, up to a limit", () => {
  const document = { a: { b: [1, "x", null] }, c: true, "d.e": {} };
  assert.deepEqual(leavesOf(document, 9), [["a.b[0]", "1"], ["a.b[1]", "x"], ["a.b[2]", "null"], ["c", "true"]]);
  assert.equal(leavesOf(document, 2).length, 2);
  assert.deepEqual(leavesOf(3, 9), [["", "3"]]);
});
