import assert from "node:assert/strict";
import { test } from "node:test";
import { decoded, rowsOf, scriptParameters } from "../src/differences";

test("a row differs if a value differs or is missing", () => {
  const rows = rowsOf([{ lr: "0.1", epochs: "3" }, { lr: "0.2", epochs: "3", layers: "2" }]);
  assert.deepEqual(rows.map((row) => [row.name, row.differs]), [["epochs", false], ["layers", true], ["lr", true]]);
  assert.deepEqual(rows[1]!.values, [undefined, "2"]);
});

test("names of JavaScript's own objects are only names", () => {
  const rows = rowsOf([JSON.parse('{"constructor": "a", "__proto__": "b"}') as Record<string, string>, {}]);
  assert.deepEqual(rows.map((row) => [row.name, ...row.values]), [["__proto__", "b", undefined], ["constructor", "a", undefined]]);
});

test("hyperparameters are shown as the script sees them", () => {
  const given = { name: '"adam"', lr: "0.1", sagemaker_program: '"train.py"', odd: '"open', list: "[1, 2]" };
  assert.deepEqual(scriptParameters(given), { name: "adam", lr: "0.1", odd: '"open', list: "[1, 2]" });
  assert.equal(decoded('"\\u202e"'), "\u202e");
});
