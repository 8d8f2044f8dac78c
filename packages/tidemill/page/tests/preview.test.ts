import assert from "node:assert/strict";
import { test } from "node:test";
import { isArchive, isText, parseTable, prettyJson, previewKind } from "../src/preview";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

test("the kind of a file follows from its name and its bytes", () => {
  assert.equal(previewKind("a/curve.PNG", bytes("not really")), "image");
  assert.equal(previewKind("config.json", bytes("{}")), "json");
  assert.equal(previewKind("data.csv", bytes("a,b")), "table");
  assert.equal(previewKind("README", bytes("text <script>")), "text");
  assert.equal(previewKind("weights.bin", new Uint8Array([1, 0, 2])), "none");
  assert.equal(previewKind("data.csv", new Uint8Array([0xff, 0xfe, 0x41])), "none");
  assert.equal(previewKind("page.html", bytes("<b>")), "text", "markup is text here");
});

test("text that is cut within a character is text", () => {
  assert.ok(isText(bytes("é".repeat(10)).subarray(0, 19)));
  assert.ok(!isText(new Uint8Array([0xc3, 0x28])));
});

test("archives are known by their names", () => {
  for (const name of ["model.tar.gz", "a/b.tgz", "m.keras", "x.ZIP", "w.npz"]) assert.ok(isArchive(name), name);
  for (const name of ["gz", "data.gz", "zip", "tar.gz.txt"]) assert.ok(!isArchive(name), name);
});

test("JSON gets lines, and what is no JSON stays as it is", () => {
  assert.equal(prettyJson('{"a":[1]}'), '{\n  "a": [\n    1\n  ]\n}');
  assert.equal(prettyJson('{"a":'), '{"a":');
  const document = { a: [], b: {}, c: [{ "x\\": '",:{[' }, -1.5, true, null], "": [[1, 2], "\n"] };
  for (const indent of [0, 4]) assert.equal(prettyJson(JSON.stringify(document, null, indent)), JSON.stringify(document, null, 2));
});

test("values of JSON stay what they are", () => {
  const text = '{\n  "id": 12345678901234567890,\n  "id": -0,\n  "x": 1.0\n}';
  assert.equal(prettyJson(text), text);
});

test("cells with quotes, separators and line breaks are read as RFC 4180 describes them", () => {
  const { rows, isCut } = parseTable('name,"a, ""b"""\r\n"two\nlines",\n,last', ",");
  assert.deepEqual(rows, [
    ["name", 'a, "b"'],
    ["two\nlines", ""],
    ["", "last"],
  ]);
  assert.ok(!isCut);
  assert.deepEqual(parseTable("a\tb\n", "\t").rows, [["a", "b"]]);
  assert.deepEqual(parseTable("", ",").rows, []);
});

test("a long or wide table is cut, and says so", () => {
  const long = parseTable("1,2\n".repeat(300), ",");
  assert.equal(long.rows.length, 200);
  assert.ok(long.isCut);
  const wide = parseTable("x,".repeat(80), ",");
  assert.equal(wide.rows[0]?.length, 50);
  assert.ok(wide.isCut);
});
