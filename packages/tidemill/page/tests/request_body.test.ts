import assert from "node:assert/strict";
import { test } from "node:test";
import { bodyOf, exampleOf, isBatched, tensorText } from "../src/request_body";

const signature = (Inputs: { Name: string; Type: string; Shape?: number[] }[], Name = "serving_default") => ({
  Name,
  Method: "predict",
  Inputs,
  Outputs: [],
});

test("inputs with a batch make one instance, others make whole tensors", () => {
  const batched = signature([
    { Name: "x", Type: "float", Shape: [-1, 2] },
    { Name: "word", Type: "string", Shape: [-1] },
  ]);
  assert.ok(isBatched(batched));
  assert.equal(bodyOf(batched, { x: "[1, 2]", word: "a b" }), '{"instances":[{"x":[1,2],"word":"a b"}]}');
  const whole = signature([{ Name: "x", Type: "int64", Shape: [] }], "add");
  assert.equal(bodyOf(whole, { x: "3" }), '{"signature_name":"add","inputs":{"x":3}}');
});

test("an example has the shape of the input, and is left out if it were large or the shape is unknown", () => {
  assert.equal(exampleOf({ Name: "x", Type: "float", Shape: [-1, 2, 2] }, true), "[[0,0],[0,0]]");
  assert.equal(exampleOf({ Name: "x", Type: "float", Shape: [-1, 2] }, false), "[[0,0]]");
  assert.equal(exampleOf({ Name: "x", Type: "string", Shape: [-1] }, true), '""');
  assert.equal(exampleOf({ Name: "x", Type: "bool", Shape: [-1, -1] }, true), "[false]");
  assert.equal(exampleOf({ Name: "x", Type: "float", Shape: [-1, 512, 512] }, true), "");
  assert.equal(exampleOf({ Name: "x", Type: "float" }, true), "");
});

test("a value that is no JSON names its input", () => {
  const one = signature([{ Name: "x", Type: "float", Shape: [-1] }]);
  assert.throws(() => bodyOf(one, { x: "1," }), /x is no JSON/);
});

test("a tensor is described in words", () => {
  assert.equal(tensorText({ Name: "x", Type: "float", Shape: [-1, 28] }), "float, any × 28");
  assert.equal(tensorText({ Name: "x", Type: "int64", Shape: [] }), "int64, one value");
  assert.equal(tensorText({ Name: "x", Type: "string" }), "string, any shape");
});
