/** The address as state: a view is a function of path and query, so that every state of it can be linked. */

import { useEffect, useState } from "preact/hooks";

const BASE = "/_tidemill/";
const CHANGED = "tidemill:place";

export interface Place {
  /** Below `/_tidemill/`, still percent-encoded. */
  path: string;
  query: URLSearchParams;
}

/** Values of a query; null and the empty text leave a parameter out, a list repeats it. */
export type QueryValues = Record<string, string | readonly string[] | null | undefined>;

export function currentPlace(): Place {
  const path = window.location.pathname;
  return {
    path: path.startsWith(BASE) ? path.slice(BASE.length) : "",
    query: new URLSearchParams(window.location.search),
  };
}

/** The current place; the component renders again whenever it changes. */
export function usePlace(): Place {
  const [place, setPlace] = useState(currentPlace);
  useEffect(() => {
    const update = (): void => setPlace(currentPlace());
    window.addEventListener("popstate", update);
    window.addEventListener(CHANGED, update);
    return () => {
      window.removeEventListener("popstate", update);
      window.removeEventListener(CHANGED, update);
    };
  }, []);
  return place;
}

/**
 * An address of the page: `href(["jobs", "training", name], {tab: "log"})`. Segments are encoded here, and only here.
 * A segment with slashes, e.g. the key of an object, stays several segments if it is given as several.
 */
export function href(segments: readonly string[], query: QueryValues = {}): string {
  const search = new URLSearchParams();
  merge(search, query);
  const text = search.toString();
  return BASE + segments.map(encodeURIComponent).join("/") + (text ? `?${text}` : "");
}

/** The name of the current entry of the history, for what is remembered of it. */
export function entryName(): string {
  return (window.history.state as { entry?: string } | null)?.entry ?? "";
}

/** Go to an address that `href` made. */
export function go(address: string, options: { replace?: boolean } = {}): void {
  if (options.replace) window.history.replaceState(window.history.state, "", address);
  else window.history.pushState({ entry: `${Date.now()} ${Math.random()}` }, "", address);
  window.dispatchEvent(new Event(CHANGED));
}

/** Change parameters of the query and keep the others; without an entry in the history unless `push`. */
export function setQuery(values: QueryValues, options: { push?: boolean } = {}): void {
  const search = new URLSearchParams(window.location.search);
  merge(search, values);
  const text = search.toString();
  go(window.location.pathname + (text ? `?${text}` : "") + window.location.hash, { replace: !options.push });
}

function merge(search: URLSearchParams, values: QueryValues): void {
  for (const [name, value] of Object.entries(values)) {
    search.delete(name);
    const list = typeof value === "string" ? [value] : (value ?? []);
    for (const each of list) if (each) search.append(name, each);
  }
}
