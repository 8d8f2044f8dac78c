import "./browser";

import assert from "node:assert/strict";
import { mock, test } from "node:test";

import { LogLines, LogSearch, type LinesAnswer } from "../src/log_lines";
import { ServiceError } from "../src/service";

function lines(first: number, limit: number): LinesAnswer {
  const Lines = Array.from({ length: Math.min(limit, 1000 - first) }, (_, index) => ({
    Number: first + index,
    Message: `line ${first + index}`,
    Bytes: 8,
    IsState: false,
  }));
  return { Lines, FirstKept: 0, Count: 1000 };
}

const turns = async (): Promise<void> => {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
};

test("lines in sight whose request failed are asked for again", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  let failures = 1;
  const tested = new LogLines(
    async (first, limit) => {
      if (first === 400 && failures-- > 0) throw new ServiceError("NoAnswer", "", 0);
      return lines(first, first === 0 && limit > 200 ? 1 : limit);
    },
    () => undefined,
  );
  await tested.refresh();
  tested.want(400, 450);
  await turns();
  assert.equal(tested.line(420), undefined);
  assert.notEqual(tested.error, null);
  mock.timers.tick(5000);
  await turns();
  assert.equal(tested.line(420)?.Message, "line 420");
  assert.equal(tested.error, null);
  mock.timers.reset();
});

test("a search goes on after a request without an answer, and ends with others", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  let failures = 1;
  let signal: AbortSignal | undefined;
  const tested = new LogSearch(
    { text: "x", isRegex: false, ignoreCase: false },
    async (_wanted, _first, _limit, given) => {
      signal = given;
      if (failures-- > 0) throw new ServiceError("NoAnswer", "", 0);
      return { Lines: [3], NextLine: 1000, IsComplete: true, TookTooLong: false };
    },
    () => undefined,
  );
  await tested.goOn(1000);
  assert.deepEqual(tested.lines, []);
  const now = mock.method(performance, "now", () => 1e9);
  mock.timers.tick(5000);
  await turns();
  now.mock.restore();
  assert.deepEqual(tested.lines, [3]);
  assert.equal(tested.error, null);
  tested.end();
  assert.ok(signal?.aborted);
  mock.timers.reset();
});
