import assert from "node:assert/strict";
import { test } from "node:test";

import { cut, cutMiddle, shown } from "../src/shown_text";

test("characters that hide or reorder others are shown as signs", () => {
  assert.equal(shown("a\u0000b\u001b[31mc\u007f"), "a\u2400b\u241b[31mc\u2421");
  assert.equal(shown("\u202egnp.exe"), "\u27e8U+202E\u27e9gnp.exe");
  assert.equal(shown("a\u200bb\u2066c\ufeff\u2028"), "a\u27e8U+200B\u27e9b\u27e8U+2066\u27e9c\u27e8U+FEFF\u27e9\u27e8U+2028\u27e9");
  assert.equal(shown("x\u{e0041}\ud800y"), "x\u27e8U+E0041\u27e9\u27e8U+D800\u27e9y");
  assert.equal(shown("line\n\tnext"), "line\u240a\u2409next");
  assert.equal(shown("line\n\tnext\r", { lines: true }), "line\n\tnext\u240d");
});

test("letters of all scripts, and pictures of two code units, stay as they are", () => {
  const text = "<b>Größe</b> 学習 שלום مرحبا 😀 é";
  assert.equal(shown(text), text);
});

test("a cut never halves a character", () => {
  assert.deepEqual(cut("abc", 3), { text: "abc", left: 0 });
  assert.deepEqual(cut("ab😀c", 3), { text: "ab", left: 3 });
  assert.equal(cutMiddle("a-long-name-0001", 9), "a-lo…0001");
  assert.equal(cutMiddle("😀".repeat(5), 3), "😀…😀");
});

test("a long line is shown in a time that grows with its length", () => {
  assert.equal(shown("\u0001".repeat(1_000_000)).length, 1_000_000);
});
