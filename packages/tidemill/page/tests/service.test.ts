import { serve, storage } from "./browser";

import assert from "node:assert/strict";
import { test } from "node:test";

import { call, currentSession, isRefusal, ServiceError } from "../src/service";

const ENDED = (): Response => new Response(JSON.stringify({ __type: "PageSessionEnded" }), { status: 401 });

function begin(secret: string): void {
  storage.setItem("tidemill-session", JSON.stringify({ secret, user: "arn:aws:iam::000000000000:root" }));
}

test("the end of a session does not end the one that began meanwhile", async () => {
  begin("earlier");
  serve(() => {
    begin("later"); // by another tab, while this request waits
    return ENDED();
  });
  await assert.rejects(call("tidemill", "WaitForChanges"));
  assert.notEqual(currentSession(), null);
  serve(ENDED);
  await assert.rejects(call("tidemill", "WaitForChanges"));
  assert.equal(currentSession(), null);
});

test("a request without an answer may be sent again, one that was refused need not be", () => {
  assert.ok(isRefusal(new ServiceError("ValidationException", "", 400)));
  assert.ok(isRefusal(new ServiceError("NoAddress", "", 0)));
  assert.ok(!isRefusal(new ServiceError("NoAnswer", "", 0)));
  assert.ok(!isRefusal(new ServiceError("InternalFailure", "", 500)));
  assert.ok(!isRefusal(new TypeError("x")));
});
