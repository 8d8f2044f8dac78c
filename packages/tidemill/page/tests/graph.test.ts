import assert from "node:assert/strict";
import { test } from "node:test";
import { layoutOf } from "../src/graph";

test("each node is below all that it needs, and an implied edge is left out", () => {
  const layout = layoutOf([
    { name: "train", needs: ["prepare"] },
    { name: "prepare", needs: [] },
    { name: "register", needs: ["prepare", "train", "check"] },
    { name: "check", needs: ["train"] },
  ]);
  const layer = (name: string): number => layout.places.get(name)!.layer;
  assert.deepEqual(["prepare", "train", "check", "register"].map(layer), [0, 1, 2, 3]);
  assert.deepEqual(layout.edges.map(({ from, to }) => `${from}>${to}`).sort(), ["check>register", "prepare>train", "train>check"]);
});

test("two chains do not cross", () => {
  const layout = layoutOf([
    { name: "a1", needs: [] },
    { name: "b1", needs: [] },
    { name: "b2", needs: ["b1"] },
    { name: "a2", needs: ["a1"] },
  ]);
  const column = (name: string): number => layout.places.get(name)!.column;
  assert.ok((column("a1") < column("b1")) === (column("a2") < column("b2")));
});

test("a layer with fewer nodes is in the middle", () => {
  const layout = layoutOf([{ name: "top", needs: [] }, ...["x", "y", "z"].map((name) => ({ name, needs: ["top"] }))]);
  assert.deepEqual(layout.places.get("top"), { layer: 0, column: 1 });
  assert.equal(layout.columns, 3);
});

test("a need that does not exist is no edge", () => {
  assert.deepEqual(layoutOf([{ name: "alone", needs: ["gone"] }]).edges, []);
});
