/** The values in a JSON document, by their paths. */

/** Return path and text of each value that is no list or object, at most `most`. */
export function leavesOf(document: unknown, most: number): [string, string][] {
  const found: [string, string][] = [];
  const walk = (value: unknown, path: string): void => {
    if (found.length >= most) return;
    if (typeof value === "object" && value !== null) {
      const isList = Array.isArray(value);
      for (const [name, each] of Object.entries(value)) walk(each, isList ? `${path}[${name}]` : path ? `${path}.${name}` : name);
    } else {
      found.push([path, typeof value === "string" ? value : JSON.stringify(value)]);
    }
  };
  walk(document, "");
  return found;
}
