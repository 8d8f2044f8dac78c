/** The layout of a directed acyclic graph in layers: each node below all that it needs, with few crossings. */

export interface GraphNode {
  name: string;
  needs: readonly string[];
}

/** Where a node is: its layer from the top, and its place in the layer from the left, in widths of a node. */
export interface Place {
  layer: number;
  column: number;
}

export interface Layout {
  places: ReadonlyMap<string, Place>;
  edges: readonly { from: string; to: string }[];
  layers: number;
  columns: number;
}

/** Sweeps over the layers; more of them change the order of small graphs no further. */
const SWEEPS = 8;

/** Return the layout. An edge that another path implies is left out, because it says nothing more. */
export function layoutOf(nodes: readonly GraphNode[]): Layout {
  const needs = direct(nodes);
  const layers = layersOf(nodes, needs);
  for (let sweep = 0; sweep < SWEEPS; sweep++) untangle(layers, needs, sweep % 2 === 0);
  const columns = Math.max(1, ...layers.map((layer) => layer.length));
  const places = new Map<string, Place>();
  layers.forEach((layer, number) => {
    const indent = (columns - layer.length) / 2;
    layer.forEach((name, i) => places.set(name, { layer: number, column: indent + i }));
  });
  const edges = [...needs].flatMap(([to, sources]) => [...sources].map((from) => ({ from, to })));
  return { places, edges, layers: layers.length, columns };
}

/** Return what each node needs, without what it needs through others. */
function direct(nodes: readonly GraphNode[]): Map<string, Set<string>> {
  const given = new Map(nodes.map(({ name, needs }) => [name, needs]));
  const above = new Map<string, Set<string>>();
  const ancestors = (name: string): Set<string> => {
    let found = above.get(name);
    if (!found) {
      above.set(name, (found = new Set()));
      for (const each of given.get(name) ?? []) {
        found.add(each);
        for (const further of ancestors(each)) found.add(further);
      }
    }
    return found;
  };
  return new Map(
    nodes.map(({ name, needs }) => {
      const present = needs.filter((each) => given.has(each));
      return [name, new Set(present.filter((each) => !present.some((other) => ancestors(other).has(each))))];
    }),
  );
}

function layersOf(nodes: readonly GraphNode[], needs: ReadonlyMap<string, ReadonlySet<string>>): string[][] {
  const depths = new Map<string, number>();
  const depth = (name: string): number => {
    const known = depths.get(name);
    if (known !== undefined) return known;
    const own = Math.max(-1, ...[...needs.get(name)!].map(depth)) + 1;
    depths.set(name, own);
    return own;
  };
  const layers: string[][] = [];
  for (const { name } of nodes) (layers[depth(name)] ??= []).push(name);
  return layers;
}

/** Order each layer by the mean place of its neighbors in the layers before it (down) or behind it. */
function untangle(layers: string[][], needs: ReadonlyMap<string, ReadonlySet<string>>, down: boolean): void {
  const place = new Map<string, number>();
  const note = (layer: readonly string[]): void =>
    layer.forEach((name, i) => place.set(name, i - (layer.length - 1) / 2));
  layers.forEach(note);
  const users = new Map<string, string[]>();
  for (const [to, sources] of needs) for (const from of sources) users.set(from, [...(users.get(from) ?? []), to]);
  for (const layer of down ? layers : [...layers].reverse()) {
    const center = new Map(
      layer.map((name) => {
        const near = down ? [...needs.get(name)!] : (users.get(name) ?? []);
        const sum = near.reduce((total, each) => total + place.get(each)!, 0);
        return [name, near.length ? sum / near.length : place.get(name)!];
      }),
    );
    layer.sort((a, b) => center.get(a)! - center.get(b)!);
    note(layer);
  }
}
