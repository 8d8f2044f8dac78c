import assert from "node:assert/strict";
import { test } from "node:test";

import { href } from "../src/location";
import { findRoute } from "../src/routes";

test("a path is one view with its decoded parameters", () => {
  assert.equal(findRoute("jobs")?.route.title, "Jobs");
  assert.equal(findRoute("jobs/")?.route.title, "Jobs");
  assert.deepEqual(findRoute("jobs/training/a%2Fb")?.params, { kind: "training", name: "a/b" });
  assert.deepEqual(findRoute("data/bucket/a/b%20c/d")?.params, { bucket: "bucket", rest: "a/b c/d" });
  assert.equal(findRoute("data/bucket/a/")?.params["rest"], "a/");
  assert.equal(findRoute("jobs/training"), null);
  assert.equal(findRoute("no/such/view/at/all"), null);
  assert.deepEqual(findRoute("endpoints/%zz")?.params, { name: "%zz" });
});

test("an address leads back to its parameters, whatever is in them", () => {
  for (const name of ["a/b", "?q=1#f", "%2F", "..", "a b+c&d", "javascript:alert(1)", "學"]) {
    const address = href(["endpoints", name], { tab: "log&x=1", none: null, empty: "" });
    assert.ok(address.startsWith("/_tidemill/endpoints/"), address);
    const url = new URL(address, "http://127.0.0.1:8780/");
    if (name !== "..") assert.deepEqual(findRoute(url.pathname.slice("/_tidemill/".length))?.params, { name });
    assert.deepEqual([...url.searchParams], [["tab", "log&x=1"]]);
  }
});
