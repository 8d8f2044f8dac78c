import { page, settled } from "./browser";

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { loopOf } from "../src/visible";

test("a loop acts again as it is told, once at a time, and never after its end", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  let acts = 0;
  let finish: (next: number | undefined) => void = () => undefined;
  const loop = loopOf(() => {
    acts += 1;
    return new Promise((resolve) => (finish = resolve));
  });
  loop.soon();
  loop.soon();
  mock.timers.tick(10_000);
  assert.equal(acts, 1);
  finish(undefined);
  await settled();
  mock.timers.tick(1000);
  assert.equal(acts, 2);
  finish(5000);
  await settled();
  mock.timers.tick(5000);
  assert.equal(acts, 3);
  loop.end();
  finish(1);
  await settled();
  mock.timers.tick(10_000);
  assert.equal(acts, 3);
  mock.timers.reset();
});

test("nothing is done while nobody sees the page", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  let acts = 0;
  const loop = loopOf(async () => {
    acts += 1;
    return 1000;
  });
  await settled();
  page.hidden = true;
  mock.timers.tick(60_000);
  assert.equal(acts, 1);
  page.hidden = false;
  page.dispatchEvent(new Event("visibilitychange"));
  await settled();
  assert.equal(acts, 2);
  loop.end();
  page.dispatchEvent(new Event("visibilitychange"));
  await settled();
  assert.equal(acts, 2);
  mock.timers.reset();
});
