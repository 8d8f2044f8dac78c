import assert from "node:assert/strict";
import { test } from "node:test";
import { nameInArn, pathOfArn } from "../src/arn";

const ARN = "arn:aws:sagemaker:us-east-1:000000000000:";

test("what has a view is found by its ARN", () => {
  const paths = {
    "training-job/digits": ["jobs", "training", "digits"],
    "hyper-parameter-tuning-job/t": ["tuning", "t"],
    "model-package/group/3": ["registry", "group", "3"],
    "pipeline/p": ["pipelines", "p"],
    "pipeline/p/execution/abc": ["pipelines", "p", "abc"],
    "endpoint/e": ["endpoints", "e"],
  };
  for (const [resource, path] of Object.entries(paths)) assert.deepEqual(pathOfArn(ARN + resource), path);
});

test("what has none has no path", () => {
  for (const resource of ["model/m", "model-package/alone", "endpoint-config/c", "constructor/x", ""]) {
    assert.equal(pathOfArn(ARN + resource), undefined);
  }
  assert.equal(pathOfArn("javascript:alert(1)//training-job/x"), undefined);
  assert.equal(nameInArn(`${ARN}model-package/group/3`), "group/3");
});
