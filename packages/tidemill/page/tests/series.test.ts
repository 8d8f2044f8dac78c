import assert from "node:assert/strict";
import { test } from "node:test";
import { aligned, columnsOf, extent, nearest, notPositive, picked, smoothed, summaryOf, thinned } from "../src/series";

test("smoothing weighs as TensorBoard does, from the first value on", () => {
  const values = Float64Array.of(4, 4, 4, 10);
  const [first, second, third, last] = smoothed(values, 0.9);
  for (const each of [first, second, third]) assert.ok(Math.abs(each! - 4) < 1e-12);
  // 0.9^3 * 4 terms of 4 and one of 10, over the sum of the weights
  const weights = [0.729, 0.81, 0.9, 1].map((each) => each * 0.1);
  const sum = weights.reduce((a, b) => a + b);
  const expected = (4 * (sum - 0.1) + 10 * 0.1) / sum;
  assert.ok(Math.abs(last! - expected) < 1e-12);
});

test("values that are not finite are no part of the average", () => {
  const result = smoothed(Float64Array.of(2, NaN, 2, Infinity, 2), 0.5);
  assert.deepEqual([...result], [2, NaN, 2, Infinity, 2]);
});

test("no smoothing returns the values", () => {
  assert.deepEqual([...smoothed(Float64Array.of(1, -3, 0.25), 0)], [1, -3, 0.25]);
});

test("thinning 100,000 points keeps every peak and both ends", () => {
  const count = 100_000;
  const x = Float64Array.from({ length: count }, (_, i) => i);
  const y = x.map((each) => Math.sin(each / 1000));
  y[54_321] = 50;
  y[77_777] = -50;
  y[10] = NaN;
  const kept = thinned({ x, y }, 0, count - 1, 500);
  assert.ok(kept.length <= 4 * 501, `${kept.length} points`);
  assert.ok(kept.includes(54_321) && kept.includes(77_777));
  assert.equal(kept[0], 0);
  assert.equal(kept.at(-1), count - 1);
  assert.ok(kept.every((each, i) => i === 0 || each > kept[i - 1]!), "ascending and without repetition");
});

test("thinning a window keeps one point on each side of it", () => {
  const x = Float64Array.from({ length: 100 }, (_, i) => i);
  const kept = thinned({ x, y: x }, 20, 30, 10);
  assert.deepEqual([kept[0], kept.at(-1)], [19, 31]);
});

test("a window between two points draws the line between them", () => {
  const x = Float64Array.of(0, 10, 20);
  assert.deepEqual(thinned({ x, y: x }, 12, 18, 10), [1, 2]);
});

test("steps that go back are drawn by ascending step", () => {
  const series = { label: "loss", points: [[1, 5], [2, 4], [1, 3]] as [number, number][], times: [10, 20, 30] };
  assert.deepEqual([...columnsOf(series, "step", "step").x], [1, 1, 2]);
  assert.deepEqual([...columnsOf(series, "step", "time").x], [10, 20, 30]);
  assert.deepEqual([...columnsOf(series, "step", "relative").x], [0, 10, 20]);
  assert.deepEqual([...columnsOf(series, "step", "relative").y], [5, 4, 3]);
});

test("a point without a time has no place on an axis of times", () => {
  const series = { label: "loss", points: [[1, 5], [2, 4]] as [number, number][], times: [10] };
  assert.deepEqual([...columnsOf(series, "step", "time").y], [5]);
});

test("series with other x are aligned, and what cannot be drawn is a gap", () => {
  const one = { x: Float64Array.of(1, 2), y: Float64Array.of(5, NaN) };
  const other = { x: Float64Array.of(2, 3), y: Float64Array.of(-1, 8) };
  assert.deepEqual(aligned([one, other], false), [[1, 2, 3], [5, null, undefined], [undefined, -1, 8]]);
  assert.deepEqual(aligned([one, other], true), [[1, 2, 3], [5, null, undefined], [undefined, null, 8]]);
  assert.equal(notPositive([one, other]), 1);
});

test("what no axis can show is a gap, and what is next to nothing is zero", () => {
  const far = { x: Float64Array.of(1, 2, 3, 4), y: Float64Array.of(1e300, -1e31, 1e-40, 5) };
  assert.deepEqual(aligned([far], false)[1], [null, null, 0, 5]);
  assert.deepEqual(aligned([far], true)[1], [null, null, null, 5]);
  const steps = { label: "loss", points: [[1, 5], [1e300, 4], [2, 3]] as [number, number][] };
  assert.deepEqual([...columnsOf(steps, "step", "step").x], [1, 2]);
});

test("a summary has the finite extremes and the true ends", () => {
  const y = Float64Array.of(3, NaN, 1, 7);
  assert.deepEqual(summaryOf({ x: Float64Array.of(1, 2, 3, 4), y }), { count: 4, first: 3, last: 7, min: 1, max: 7 });
  const empty = summaryOf({ x: new Float64Array(), y: new Float64Array() });
  assert.deepEqual(empty, { count: 0, first: NaN, last: NaN, min: NaN, max: NaN });
});

test("the nearest point is found, also beyond the ends", () => {
  const x = [0, 10, 20];
  assert.deepEqual([-5, 4, 6, 99].map((each) => nearest(x, each)), [0, 0, 1, 2]);
  assert.equal(nearest([], 1), -1);
});

test("the extent is that of all series with points", () => {
  const columns = { x: Float64Array.of(3, 9), y: Float64Array.of(0, 0) };
  assert.deepEqual(extent([columns, picked(columns, [])]), [3, 9]);
  assert.equal(extent([picked(columns, [])]), undefined);
});
