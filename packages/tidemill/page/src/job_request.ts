/** What can be done with the exact request of a job: run it again with changes, or write it as a command or as code. */

import { KINDS, type Kind } from "./job_kinds";
import { plainValue } from "./job_rows";

export type Request = Record<string, unknown>;

interface Resources {
  InstanceType?: string;
  InstanceCount?: number;
  InstanceGroups?: unknown[];
}

export interface Changes {
  name: string;
  /** Values as the script gets them. */
  hyperparameters: readonly (readonly [string, string])[];
  environment: readonly (readonly [string, string])[];
  instanceType: string;
  instanceCount: number;
}

/** A day and a minute, as AWS's SDKs have it in the names of tuning jobs, and one with milliseconds. */
const SHORT_STAMP = /-\d{6}-\d{4}$/;
const OWN_PREFIX = "sagemaker_";
const STAMP = /-\d{4}-\d{2}-\d{2}-\d{2}-\d{2}-\d{2}(-\d{3})?$/;

/** A name for the next run: the time at the end of a name of AWS's SDKs is replaced, other names get one. */
export function nextName(kind: Kind, name: string, now: Date): string {
  const full = now.toISOString().replace(/[T:.]/g, "-").replace("Z", "");
  const stamp = kind === "tuning" ? `${full.slice(2, 10).replaceAll("-", "")}-${full.slice(11, 16).replace("-", "")}` : full;
  const most = KINDS[kind].nameMax - stamp.length - 1;
  const base = name.replace(STAMP, "").replace(SHORT_STAMP, "").slice(0, most).replace(/-+$/, "");
  return `${base}-${stamp}`;
}

/** What a form can change of a request. */
export function changesOf(kind: Kind, request: Request, name: string): Changes {
  const resources = resourcesOf(request) ?? {};
  return {
    name,
    hyperparameters: kind === "training" ? visible(textsOf(request["HyperParameters"])) : [],
    environment: entries(request["Environment"]),
    instanceType: resources.InstanceGroups?.length ? "" : (resources.InstanceType ?? ""),
    instanceCount: resources.InstanceCount ?? 1,
  };
}

/** The request with the changes. What names the earlier job's own place in S3 gets the new name. */
export function changed(kind: Kind, request: Request, changes: Changes): Request {
  const member = `${KINDS[kind].resource}Name`;
  const earlier = String(request[member] ?? "");
  const copy = structuredClone(request);
  copy[member] = changes.name;
  const resources = resourcesOf(copy);
  if (resources && changes.instanceType && !resources.InstanceGroups?.length) {
    resources.InstanceType = changes.instanceType;
    resources.InstanceCount = changes.instanceCount;
  }
  if (kind === "training") copy["HyperParameters"] = hyperparameters(textsOf(request["HyperParameters"]), changes);
  if (changes.environment.length || copy["Environment"]) copy["Environment"] = Object.fromEntries(named(changes.environment));
  renameOutputs(copy, earlier, changes.name);
  return copy;
}

/** The tags that a user has given: SageMaker's own say which pipeline has begun a job, which would not be true of another. */
export function ownTags(tags: Record<string, string>): [string, string][] {
  return Object.entries(tags).filter(([name]) => !/^(aws|sagemaker):/i.test(name));
}

/** `tidemill train ...` for a training job of the estimators; null for a request that this command cannot make. */
export function trainCommand(request: Request, tags: Record<string, string>): string | null {
  const all = textsOf(request["HyperParameters"]);
  const program = plainValue(all["sagemaker_program"] ?? "");
  const resources = resourcesOf(request) as (Resources & { VolumeSizeInGB?: number }) | undefined;
  const strategy = distributionOf(all);
  if (!program || !resources?.InstanceType || strategy === null) return null;
  const algorithm = memberOf(request, "AlgorithmSpecification");
  const image = /:(\d+\.\d+(?:\.\d+)?)-\w+-(py\d+)/.exec(String(algorithm["TrainingImage"] ?? ""));
  const metrics = (algorithm["MetricDefinitions"] ?? []) as { Name: string; Regex: string }[];
  const [stop, checkpoints] = [memberOf(request, "StoppingCondition"), memberOf(request, "CheckpointConfig")];
  const words: [string, unknown][] = [
    ["tidemill train", program],
    ["--source-dir", "."],
    ...visible(all).map(([name, value]): [string, string] => ["--hp", `${name}=${value}`]),
    ...entries(request["Environment"]).map(([name, value]): [string, string] => ["--env", `${name}=${value}`]),
    ...inputs(request).map(([name, uri]): [string, string] => ["--input", `${name}=${uri}`]),
    ["--input-mode", algorithm["TrainingInputMode"] === "File" ? undefined : algorithm["TrainingInputMode"]],
    ["--instance-type", resources.InstanceType],
    ["--instance-count", resources.InstanceCount ?? 1],
    ["--volume-size", resources.VolumeSizeInGB],
    ["--distribution", strategy],
    ...metrics.map(({ Name, Regex }): [string, string] => ["--metric", `${Name}=${Regex}`]),
    ["--framework-version", image?.[1]],
    ["--py-version", image?.[2]],
    ["--role", request["RoleArn"]],
    ["--output-path", memberOf(request, "OutputDataConfig")["S3OutputPath"]],
    ["--checkpoint-s3-uri", checkpoints["S3Uri"]],
    ["--checkpoint-local-path", checkpoints["LocalPath"]],
    ["--max-run", stop["MaxRuntimeInSeconds"]],
    ["--spot", request["EnableManagedSpotTraining"] ? "" : undefined],
    ["--max-wait", stop["MaxWaitTimeInSeconds"]],
    ["--max-retry-attempts", memberOf(request, "RetryStrategy")["MaximumRetryAttempts"]],
    ...ownTags(tags).map(([name, value]): [string, string] => ["--tag", `${name}=${value}`]),
    ["--compile", plainValue(all["sagemaker_training_compiler_enabled"] ?? "") === "true" ? "" : undefined],
  ];
  const given = words.filter(([, value]) => value !== undefined);
  return given.map(([option, value]) => (value === "" ? option : `${option} ${quoted(String(value))}`)).join(" \\\n  ");
}

/** Where the estimator has put the code of a job; empty without one. */
export function sourceOf(request: Request): string {
  return plainValue(textsOf(request["HyperParameters"])["sagemaker_submit_directory"] ?? "");
}

/** A program for boto3 that sends the request. */
export function boto3Code(kind: Kind, request: Request): string {
  const operation = `create_${snake(KINDS[kind].resource)}`;
  return `import boto3\n\nsagemaker = boto3.client("sagemaker")\nsagemaker.${operation}(**${literal(request)})\n`;
}

/** Name and S3 URI of each input. */
export function inputs(request: Request): [string, string][] {
  const channels = (request["InputDataConfig"] ?? []) as {
    ChannelName?: string;
    DataSource?: { S3DataSource?: { S3Uri?: string } };
  }[];
  const processing = (request["ProcessingInputs"] ?? []) as { InputName?: string; S3Input?: { S3Uri?: string } }[];
  const transform = request["TransformInput"] as { DataSource?: { S3DataSource?: { S3Uri?: string } } } | undefined;
  return [
    ...channels.map((each): [string, string] => [each.ChannelName ?? "", each.DataSource?.S3DataSource?.S3Uri ?? ""]),
    ...processing.map((each): [string, string] => [each.InputName ?? "", each.S3Input?.S3Uri ?? ""]),
    ...(transform ? [["data", transform.DataSource?.S3DataSource?.S3Uri ?? ""] as [string, string]] : []),
  ];
}

/** Title and S3 URI of each place that a job writes to; a slash at the end means that all below it is the job's. */
export function outputs(kind: Kind, name: string, request: Request): [string, string][] {
  const found: [string, string][] = [];
  const add = (title: string, uri: string | undefined): void => {
    if (uri?.startsWith("s3://")) found.push([title, uri]);
  };
  if (kind === "training") {
    const base = (request["OutputDataConfig"] as { S3OutputPath?: string } | undefined)?.S3OutputPath;
    add("Output", base && `${base.replace(/\/+$/, "")}/${name}/`);
    add("Checkpoints", (request["CheckpointConfig"] as { S3Uri?: string } | undefined)?.S3Uri);
    add("model_dir", plainValue(textsOf(request["HyperParameters"])["model_dir"] ?? ""));
    const board = (request["TensorBoardOutputConfig"] as { S3OutputPath?: string } | undefined)?.S3OutputPath;
    add("TensorBoard", board && `${board.replace(/\/+$/, "")}/${name}/`);
  }
  const processing = (request["ProcessingOutputConfig"] ?? {}) as { Outputs?: ProcessingOutput[] };
  for (const each of processing.Outputs ?? []) add(each.OutputName ?? "Output", each.S3Output?.S3Uri);
  add("Output", (request["TransformOutput"] as { S3OutputPath?: string } | undefined)?.S3OutputPath);
  return found;
}

export function isOfSdk(name: string): boolean {
  return name.startsWith(OWN_PREFIX);
}

export function textsOf(value: unknown): Record<string, string> {
  return (value ?? {}) as Record<string, string>;
}

export function entries(value: unknown): [string, string][] {
  return Object.entries(textsOf(value));
}

/** The option `--distribution`; undefined without one, null for one that only the SDK can make. */
function distributionOf(all: Record<string, string>): string | null | undefined {
  const isOn = (name: string): boolean => plainValue(all[`sagemaker_${name}_enabled`] ?? "") === "true";
  if (all["mp_parameters"] || all["sagemaker_distribution_instance_groups"]) return null;
  if (isOn("parameter_server")) return "parameter_server";
  if (isOn("multi_worker_mirrored_strategy")) return "multi_worker_mirrored_strategy";
  if (!isOn("mpi")) return undefined;
  const processes = Number(all["sagemaker_mpi_num_of_processes_per_host"]);
  const options = plainValue(all["sagemaker_mpi_custom_mpi_options"] ?? "");
  return JSON.stringify({
    mpi: {
      enabled: true,
      ...(processes ? { processes_per_host: processes } : {}),
      ...(options ? { custom_mpi_options: options } : {}),
    },
  });
}

function memberOf(request: Request, name: string): Request {
  return (request[name] ?? {}) as Request;
}

interface ProcessingOutput {
  OutputName?: string;
  S3Output?: { S3Uri?: string };
}

function visible(all: Record<string, string>): [string, string][] {
  return Object.entries(all)
    .filter(([name]) => !isOfSdk(name))
    .map(([name, value]) => [name, plainValue(value)]);
}

function resourcesOf(request: Request): Resources | undefined {
  const processing = request["ProcessingResources"] as { ClusterConfig?: Resources } | undefined;
  return (request["ResourceConfig"] ?? processing?.ClusterConfig ?? request["TransformResources"]) as
    | Resources
    | undefined;
}

/** The SDK's own hyperparameters unchanged, and the others as the form has them. */
function hyperparameters(earlier: Record<string, string>, changes: Changes): Record<string, string> {
  const kept = Object.entries(earlier).filter(([name]) => isOfSdk(name));
  const chosen = named(changes.hyperparameters).map(([name, value]): [string, string] => {
    const before = Object.hasOwn(earlier, name) ? earlier[name] : undefined;
    if (before !== undefined && plainValue(before) === value) return [name, before];
    return [name, before?.startsWith('"') ? JSON.stringify(value) : value];
  });
  const all = Object.fromEntries([...chosen, ...kept]);
  if ("sagemaker_job_name" in all) all["sagemaker_job_name"] = JSON.stringify(changes.name);
  return all;
}

/** Without the rows of a form that nobody has filled in. */
function named(pairs: Changes["environment"]): Changes["environment"] {
  return pairs.filter(([name, value]) => name || value);
}

function renameOutputs(request: Request, earlier: string, name: string): void {
  const renamed = (uri: string): string =>
    uri
      .split("/")
      .map((part) => (part === earlier ? name : part))
      .join("/");
  const all = textsOf(request["HyperParameters"]);
  if (all["model_dir"]) {
    const quotes = all["model_dir"].startsWith('"');
    const uri = renamed(plainValue(all["model_dir"]));
    all["model_dir"] = quotes ? JSON.stringify(uri) : uri;
  }
  const places = [
    [request["CheckpointConfig"], "S3Uri"],
    [request["TransformOutput"], "S3OutputPath"],
    ...((request["ProcessingOutputConfig"] as { Outputs?: ProcessingOutput[] } | undefined)?.Outputs ?? []).map(
      (each) => [each.S3Output, "S3Uri"],
    ),
  ] as [Record<string, string> | undefined, string][];
  for (const [holder, member] of places) {
    if (holder?.[member]) holder[member] = renamed(holder[member]);
  }
}

/** A word of a shell's command line. */
function quoted(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (!/[\u0000-\u001f\u007f-\u009f]/.test(text)) return `'${text.replaceAll("'", `'\\''`)}'`;
  const escaped = text.replace(/[\\'\u0000-\u001f\u007f-\u009f]/g, (character) => {
    if (character === "\\" || character === "'") return `\\${character}`;
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
  return `$'${escaped}'`;
}

/** A value as Python writes it. */
function literal(value: unknown, indent = ""): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const deeper = `${indent}    `;
  const parts = Array.isArray(value)
    ? value.map((each) => literal(each, deeper))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each, deeper)}`);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (!parts.length) return open + close;
  return `${open}\n${parts.map((part) => `${deeper}${part},\n`).join("")}${indent}${close}`;
}

function snake(name: string): string {
  // botocore makes one word of HyperParameter, as of Training.
  return name.replace(/([a-z])([A-Z])/g, "$1_$2").toLowerCase();
}
