import assert from "node:assert/strict";
import { test } from "node:test";

import { changed, changesOf, nextName, ownTags } from "../src/job_request";

const NOW = new Date("2026-11-27T09:58:36.123Z");

test("the next run has a name that AWS allows for its kind", () => {
  const long = "a".repeat(63);
  assert.equal(nextName("training", "digits", NOW), "digits-2026-11-27-09-58-36-123");
  assert.equal(nextName("training", "digits-2025-01-02-03-04-05-678", NOW), "digits-2026-11-27-09-58-36-123");
  assert.equal(nextName("training", long, NOW).length, 63);
  assert.equal(nextName("tuning", "tensorflow-training-250102-0304", NOW), "tensorflow-training-261127-0958");
  assert.equal(nextName("tuning", long.slice(0, 32), NOW).length, 32);
});

test("rows that nobody filled in are not sent, and other texts stay as they are", () => {
  const request = {
    TrainingJobName: "digits",
    HyperParameters: { rate: "0.1", note: '"3"', sagemaker_program: '"train.py"' },
    ResourceConfig: { InstanceType: "local", InstanceCount: 1 },
  };
  const changes = changesOf("training", request, "next");
  const hyperparameters = [...changes.hyperparameters, ["", ""], ["__proto__", "1"]] as [string, string][];
  const sent = changed("training", request, { ...changes, hyperparameters, environment: [["", ""]] });
  const expected = JSON.parse('{"rate": "0.1", "note": "\\"3\\"", "__proto__": "1", "sagemaker_program": "\\"train.py\\""}') as object;
  assert.deepEqual(sent["HyperParameters"], expected);
  assert.deepEqual(sent["Environment"], {});
  assert.equal(sent["TrainingJobName"], "next");
});

test("the next run has the tags of its user, not those of the pipeline that began the earlier one", () => {
  assert.deepEqual(ownTags({ team: "north", "sagemaker:pipeline-name": "p", "AWS:x": "y" }), [["team", "north"]]);
});
