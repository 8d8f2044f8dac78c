/** Where the page shows what an ARN names. */

const VIEWS: Readonly<Record<string, readonly string[]>> = {
  "training-job": ["jobs", "training"],
  "processing-job": ["jobs", "processing"],
  "transform-job": ["jobs", "transform"],
  "hyper-parameter-tuning-job": ["tuning"],
  endpoint: ["endpoints"],
  "model-package-group": ["registry"],
};

/** Return the path of the view of a resource, or undefined if it has none. */
export function pathOfArn(arn: string): string[] | undefined {
  const [kind, ...names] = resourceIn(arn).split("/");
  if (!kind || !names.length) return undefined;
  if (kind === "model-package") return names.length === 2 ? ["registry", ...names] : undefined;
  if (kind === "pipeline") return names[1] === "execution" ? ["pipelines", names[0]!, names[2]!] : ["pipelines", names[0]!];
  const view = Object.hasOwn(VIEWS, kind) ? VIEWS[kind] : undefined;
  return view && names.length === 1 ? [...view, names[0]!] : undefined;
}

/** Return what stands last in an ARN: the name of the resource, or of its version as `GROUP/VERSION`. */
export function nameInArn(arn: string): string {
  const resource = resourceIn(arn);
  return resource.slice(resource.indexOf("/") + 1);
}

function resourceIn(arn: string): string {
  return arn.startsWith("arn:") ? arn.split(":").slice(5).join(":") : "";
}
