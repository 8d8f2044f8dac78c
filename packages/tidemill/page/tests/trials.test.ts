import assert from "node:assert/strict";
import { test } from "node:test";
import { axesOf, isInside, overTime, placeOf, type TrialSummary } from "../src/trials";

function trial(name: string, tuned: Record<string, string>, value?: number, ended?: number): TrialSummary {
  return {
    TrainingJobName: name,
    TrainingJobStatus: "Completed",
    CreationTime: 1,
    TunedHyperParameters: tuned,
    ...(ended === undefined ? {} : { TrainingEndTime: ended }),
    ...(value === undefined ? {} : { FinalHyperParameterTuningJobObjectiveMetric: { MetricName: "acc", Value: value } }),
  };
}

const ranges = {
  ContinuousParameterRanges: [{ Name: "lr", MinValue: "0.0001", MaxValue: "1", ScalingType: "Auto" }],
  IntegerParameterRanges: [{ Name: "units", MinValue: "1", MaxValue: "5" }],
  CategoricalParameterRanges: [{ Name: "optimizer", Values: ["adam", "sgd"] }],
};
const trials = [
  trial("a", { lr: "0.01", units: "3", optimizer: "sgd" }, 0.5, 30),
  trial("b", { lr: "1", units: "5", optimizer: "adam" }, 0.9, 10),
  trial("c", { lr: "0.1", units: "1", optimizer: "adam" }),
];

test("each tuned hyperparameter has an axis with the scaling of its range, and the objective the last", () => {
  const axes = axesOf([ranges], trials, "acc");
  assert.deepEqual(axes.map((axis) => axis.name), ["units", "lr", "optimizer", "acc"]);
  assert.deepEqual(axes.map((axis) => placeOf(trials[0]!, axis)?.toFixed(2)), ["0.50", "0.50", "1.00", "0.00"]);
  assert.equal(placeOf(trials[2]!, axes[3]!), null);
});

test("a warm start's value outside the range widens the axis", () => {
  const [axis] = axesOf([{ IntegerParameterRanges: ranges.IntegerParameterRanges }], [trial("p", { units: "9" })], "acc");
  assert.equal(placeOf(trial("p", { units: "9" }), axis!), 1);
  assert.equal(placeOf(trial("p", { units: "5" }), axis!), 0.5);
});

test("auto parameters get their axis from the values", () => {
  const auto = { AutoParameters: [{ Name: "lr", ValueHint: "0.1" }, { Name: "optimizer", ValueHint: "sgd" }] };
  const axes = axesOf([auto], trials, "acc");
  assert.deepEqual(axes[1]!.categories, ["sgd", "adam"]);
  assert.equal(placeOf(trials[1]!, axes[0]!), 1);
});

test("the best value over time is in the order of the ends", () => {
  assert.deepEqual(overTime(trials, true), { own: [[1, 0.9], [2, 0.5]], best: [[1, 0.9], [2, 0.9]], times: [10, 30] });
  assert.deepEqual(overTime(trials, false).best, [[1, 0.9], [2, 0.5]]);
});

test("a brush selects by place, and what has no value is outside", () => {
  const axes = axesOf([ranges], trials, "acc");
  const inside = (name: string, low: number, high: number): string[] =>
    trials.filter((each) => isInside(each, axes, new Map([[name, [low, high]]]))).map((each) => each.TrainingJobName);
  assert.deepEqual(inside("lr", 0.5, 0.8), ["a", "c"]);
  assert.deepEqual(inside("optimizer", 0, 0), ["b", "c"]);
  assert.deepEqual(inside("acc", 0, 1), ["a", "b"]);
});

test("names of JavaScript's own objects are only names", () => {
  const axes = axesOf([{ AutoParameters: [{ Name: "constructor", ValueHint: "1" }] }], [trial("a", { constructor: "2" }), trials[0]!], "acc");
  assert.deepEqual([trial("a", { constructor: "2" }), trials[0]!].map((each) => axes[0]?.textOf(each)), ["2", undefined]);
});
