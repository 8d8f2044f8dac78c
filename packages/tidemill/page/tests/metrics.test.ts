import assert from "node:assert/strict";
import { test } from "node:test";
import { overlaid } from "../src/metrics";

test("series of several jobs with one title share a chart", () => {
  const one = { label: "loss", points: [] };
  const two = [{ label: "train", points: [] }, { label: "eval", points: [] }];
  const charts = overlaid(["a", "b"], [[{ title: "loss", series: [one] }], [{ title: "loss", series: two }, { title: "rate", series: [one] }]]);
  const labels = charts.map(({ title, series }) => [title, ...series.map((each) => each.label)]);
  assert.deepEqual(labels, [["loss", "a", "b train", "b eval"], ["rate", "b"]]);
});
