import assert from "node:assert/strict";
import { test } from "node:test";
import { axisTimes, elapsed, stepText, tickFigure } from "../src/axis_text";

test("ticks have no idle zeros", () => {
  const shown = [0, 3, -12, 0.1 + 0.2, 0.5, 1e-7, 2.5e12, 100, 1000];
  assert.deepEqual(shown.map(tickFigure), ["0", "3", "-12", "0.3", "0.5", "1e-7", "2.5e+12", "100", "1000"]);
});

test("elapsed seconds keep their fractions below a minute", () => {
  assert.deepEqual([0, 0.25, 59, 61, 3725].map(elapsed), ["0 s", "0.25 s", "59 s", "1 min 01 s", "1 h 02 min"]);
});

test("times are as exact as their span asks for", () => {
  assert.match(axisTimes([1_790_000_000, 1_790_000_060])[0]!, /^\d\d:\d\d:\d\d$/);
  assert.match(axisTimes([1_790_000_000, 1_790_009_000])[0]!, /^\d\d:\d\d$/);
  assert.match(axisTimes([1_790_000_000, 1_790_900_000])[0]!, /^\w{3} \d+, \d\d:\d\d$/);
});

test("neighboring steps of a long run have texts of their own", () => {
  assert.deepEqual([0, 12_345_678, 12_345_679, 1e15].map(stepText), ["0", "12345678", "12345679", "1000000000000000"]);
});
