/**
 * The table of views. A path is matched segment by segment: `:name` is a parameter, and a last `*` takes the rest,
 * slashes included, as the parameter `rest`.
 */

import type { ComponentType } from "preact";

/** What every view gets; its default export is a component of these. */
export interface ViewProps {
  /** Decoded parameters of the path, e.g. `{kind: "training", name: "digits"}`. */
  params: Record<string, string>;
  /** The query of the address: filters, sorting, everything that a link should keep. */
  query: URLSearchParams;
}

export interface Route {
  path: string;
  /** Title of the window, before the parameters. */
  title: string;
  /** Text in the navigation; views without it are reached by links. */
  menu?: string;
  load: () => Promise<{ default: ComponentType<ViewProps> }>;
}

export interface Found {
  route: Route;
  params: Record<string, string>;
}

export const ROUTES: readonly Route[] = [
  { path: "jobs", title: "Jobs", menu: "Jobs", load: () => import("./views/jobs") },

  { path: "jobs/:kind/:name", title: "Job", load: () => import("./views/job") },

  { path: "compare", title: "Compare", load: () => import("./views/compare") },

  { path: "tuning/:name", title: "Tuning", load: () => import("./views/tuning") },

  { path: "experiments", title: "Experiments", menu: "Experiments", load: () => import("./views/experiments") },
  { path: "experiments/:name", title: "Experiment", load: () => import("./views/experiments") },

  { path: "pipelines", title: "Pipelines", menu: "Pipelines", load: () => import("./views/pipelines") },
  { path: "pipelines/:name", title: "Pipeline", load: () => import("./views/pipelines") },
  { path: "pipelines/:name/:execution", title: "Execution", load: () => import("./views/pipelines") },

  { path: "registry", title: "Registry", menu: "Registry", load: () => import("./views/registry") },
  { path: "registry/:group", title: "Model group", load: () => import("./views/registry") },
  { path: "registry/:group/:version", title: "Model version", load: () => import("./views/registry") },

  { path: "endpoints", title: "Endpoints", menu: "Endpoints", load: () => import("./views/endpoints") },

  { path: "endpoints/:name", title: "Endpoint", load: () => import("./views/endpoint") },

  { path: "data", title: "Data", menu: "Data", load: () => import("./views/data") },
  { path: "data/:bucket", title: "Bucket", load: () => import("./views/data") },
  { path: "data/:bucket/*", title: "Data", load: () => import("./views/data") },

  { path: "system", title: "System", menu: "System", load: () => import("./views/system") },
];

/** The route of a path below `/_tidemill/`, without a slash at its begin; null if there is none. */
export function findRoute(path: string): Found | null {
  const segments = path.split("/");
  // A slash at the end says nothing, but in what `*` takes: the key of an object may end so.
  const closed = segments.length > 1 && segments.at(-1) === "" ? segments.slice(0, -1) : segments;
  for (const route of ROUTES) {
    const params = matched(route.path.split("/"), route.path.endsWith("*") ? segments : closed);
    if (params) return { route, params };
  }
  return null;
}

function matched(pattern: string[], segments: string[]): Record<string, string> | null {
  const open = pattern[pattern.length - 1] === "*";
  if (open ? segments.length < pattern.length : segments.length !== pattern.length) return null;
  const params: Record<string, string> = {};
  for (const [index, part] of pattern.entries()) {
    const segment = segments[index] ?? "";
    if (part === "*") params["rest"] = segments.slice(index).map(decoded).join("/");
    else if (part.startsWith(":")) params[part.slice(1)] = decoded(segment);
    else if (part !== segment) return null;
  }
  return params;
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment; // no valid percent-encoding: nothing has such a name, and the view says so
  }
}
