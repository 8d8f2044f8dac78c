/** Fails if the built page is larger than a slow line carries in a moment: all of its files together, compressed. */

import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const BUILT = new URL("../src/tidemill/page/", import.meta.url).pathname;
const LIMIT_BYTES = 150_000;

const files = readdirSync(BUILT, { recursive: true })
  .map((name) => join(BUILT, name))
  .filter((path) => statSync(path).isFile());
const total = files.reduce((sum, path) => sum + gzipSync(readFileSync(path), { level: 9 }).length, 0);
const text = `the page has ${total} bytes, compressed; at most ${LIMIT_BYTES} are allowed`;
if (total > LIMIT_BYTES) {
  console.error(text);
  process.exit(1);
}
console.log(text);
