import { serve } from "./browser";

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { curvesOf, endpointCurves } from "../src/endpoint_metrics";

test("periods without requests are zeros per second, and have no latency", () => {
  const results = [
    { Id: "rate_0", Timestamps: [120], Values: [30] },
    { Id: "errors_0", Timestamps: [120], Values: [6] },
    { Id: "p50_0", Timestamps: [120], Values: [2500] },
    { Id: "p99_0", Timestamps: [120], Values: [9000] },
  ];
  const curves = curvesOf(results, ["A"], 60, 180, 60);
  assert.deepEqual(curves.rate, [{ label: "A", points: [[60, 0], [120, 0.5], [180, 0]] }]);
  assert.deepEqual(curves.errors[0]?.points, [[60, 0], [120, 0.1], [180, 0]]);
  assert.deepEqual(curves.latency, [
    { label: "p50", points: [[120, 2.5]] },
    { label: "p90", points: [] },
    { label: "p99", points: [[120, 9]] },
  ]);
});

test("several variants are told apart", () => {
  const curves = curvesOf([], ["A", "B"], 0, 60, 60);
  assert.deepEqual(curves.rate.map((each) => each.label), ["A", "B"]);
  assert.deepEqual(curves.latency.map((each) => each.label), ["A p50", "A p90", "A p99", "B p50", "B p90", "B p99"]);
});

test("the period that goes on is no rate yet, but its latencies are known", async () => {
  mock.method(Date, "now", () => 1_200_030_000);
  serve(() => ({
    MetricDataResults: [
      { Id: "rate_0", Timestamps: [1_199_940, 1_200_000], Values: [60, 10] },
      { Id: "p50_0", Timestamps: [1_199_940, 1_200_000], Values: [2000, 3000] },
    ],
  }));
  const { rate, latency } = await endpointCurves("e", ["A"], 60);
  mock.restoreAll();
  assert.deepEqual(rate[0]?.points.at(-1), [1_199_940, 1]);
  assert.deepEqual(latency[0]?.points.at(-1), [1_200_000, 3]);
});
