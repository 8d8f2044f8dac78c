import assert from "node:assert/strict";
import { test } from "node:test";
import { leavesOf } from "../src/json_leaves";

test("leaves of JSON have their paths, up to a limit", () => {
  const document = { a: { b: [1, "x", null] }, c: true, "d.e": {} };
  assert.deepEqual(leavesOf(document, 9), [["a.b[0]", "1"], ["a.b[1]", "x"], ["a.b[2]", "null"], ["c", "true"]]);
  assert.equal(leavesOf(document, 2).length, 2);
  assert.deepEqual(leavesOf(3, 9), [["", "3"]]);
});
