import { serve, settled } from "./browser";

import assert from "node:assert/strict";
import { test } from "node:test";

import { JobFeed } from "../src/job_feed";
import { JobRows, type JobRow } from "../src/job_rows";

function row(name: string, values: Partial<JobRow> = {}): JobRow {
  const times = { CreationTime: 1, LastModifiedTime: 1 };
  return { Kind: "training", Name: name, Arn: "", Status: "InProgress", ...times, ...values };
}

function feed(): { rows: JobRows; feed: JobFeed } {
  const rows = new JobRows();
  return { rows, feed: new JobFeed(rows, () => undefined, new AbortController().signal) };
}

test("a list that failed once is loaded again, and its error goes", async () => {
  let failures = 1;
  serve(({ input }) => {
    if (input["Kind"] !== "training") return { Jobs: [], Queue: [] };
    return failures-- > 0 ? 500 : { Jobs: [row("one")], Queue: [] };
  });
  const { rows, feed: tested } = feed();
  tested.hear(null);
  await settled();
  assert.equal(rows.size, 0);
  assert.notEqual(tested.error, null);
  await tested.lookAtLive();
  assert.equal(rows.size, 1);
  assert.equal(tested.error, null);
});

test("a job that was deleted while the service did not answer leaves the table", async () => {
  let answers: unknown = { Jobs: [row("gone", { Status: "Completed" })], Queue: [] };
  serve(({ input }) => (input["Kind"] === "training" ? answers : { Jobs: [], Queue: [] }));
  const { rows, feed: tested } = feed();
  tested.hear(null);
  await settled();
  assert.equal(rows.size, 1);
  answers = new TypeError("refused");
  tested.hear(new Map([["training-job", ["gone"]]]));
  await settled();
  answers = { Jobs: [], Queue: [] };
  await tested.lookAtLive();
  assert.equal(rows.size, 0);
});

test("the jobs are loaded without the stream of changes, too", async () => {
  serve(({ input }) => ({ Jobs: input["Kind"] === "training" ? [row("one")] : [], Queue: [] }));
  const { rows, feed: tested } = feed();
  await tested.lookAtLive();
  assert.equal(rows.size, 0);
  await tested.lookAtLive();
  await settled();
  assert.equal(rows.size, 1);
});

test("a slow answer does not bring back an earlier state, nor a place in the queue", () => {
  const rows = new JobRows();
  rows.merge([row("one")]);
  rows.queue("training", [{ Name: "one", Place: 2 }]);
  assert.equal(rows.place("training/one"), 2);
  rows.merge([row("one", { Status: "Completed", LastModifiedTime: 3 })]);
  rows.merge([row("one", { LastModifiedTime: 2 })]);
  assert.equal(rows.get("training/one")?.row.Status, "Completed");
  assert.equal(rows.place("training/one"), undefined);
});
