/** The order of values in a column. */

/** A value by which a table is sorted; undefined if a row has none. */
export type Key = number | string | undefined;

/** Return a text as a number if it is one, so that 10 comes behind 9. */
export function sortable(text: string | undefined): Key {
  return text === undefined || text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text);
}

/** Compare two values; those that are missing come last in both orders. */
export function compared(a: Key, b: Key, descending: boolean): number {
  if (a === undefined || b === undefined) return Number(a === undefined) - Number(b === undefined);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return descending ? -order : order;
}
