import assert from "node:assert/strict";
import { test } from "node:test";
import { categoryScale, linear, logarithmic, numberScale } from "../src/scales";

test("linear ticks are round, inside, and exact", () => {
  assert.deepEqual(linear(0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(linear(0.1, 0.32), [0.1, 0.15, 0.2, 0.25, 0.3]);
  assert.deepEqual(linear(-3, 17), [0, 5, 10, 15]);
  assert.deepEqual(linear(4, 4), [4]);
});

test("logarithmic ticks are powers of ten, or more between few of them", () => {
  assert.deepEqual(logarithmic(1e-5, 1), [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1]);
  assert.deepEqual(logarithmic(0.01, 0.5), [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]);
  assert.deepEqual(logarithmic(3, 4), linear(3, 4));
});

test("a number's place follows the scaling of its range", () => {
  assert.equal(numberScale(0, 10).at("2.5"), 0.25);
  assert.ok(Math.abs(numberScale(1e-4, 1, "Logarithmic").at("0.01")! - 0.5) < 1e-12);
  assert.equal(numberScale(1e-4, 1, "Logarithmic").at("0"), null);
  assert.equal(numberScale(0, 0.99, "ReverseLogarithmic").at("0.9")!.toFixed(3), "0.500");
  assert.equal(numberScale(3, 3).at("3"), 0.5);
  assert.equal(numberScale(0, 1).at("relu"), null);
  assert.equal(numberScale(0, 1).at(" "), null);
});

test("a place has the text of its value", () => {
  assert.equal(numberScale(1e-4, 1, "Logarithmic").text(0.5), "0.01");
  assert.equal(numberScale(0, 0.99, "ReverseLogarithmic").text(0.5), "0.9");
  assert.equal(numberScale(0, 10).text(0.25), "2.5");
  assert.equal(categoryScale(["a", "b", "c"]).text(0.5), "b");
});

test("categories have equal distances", () => {
  const scale = categoryScale(["adam", "sgd", "rmsprop"]);
  assert.deepEqual(["adam", "sgd", "rmsprop", "lion"].map((each) => scale.at(each)), [0, 0.5, 1, null]);
});
