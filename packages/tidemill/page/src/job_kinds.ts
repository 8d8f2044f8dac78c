/** The four kinds of jobs: what AWS's operations call them. */

import type { Kind as StoredKind } from "./changes";

export type Kind = "training" | "processing" | "transform" | "tuning";

export interface KindOfJob {
  kind: Kind;
  title: string;
  /** In the names of operations, e.g. `StopTrainingJob`. */
  resource: string;
  /** Most characters of a name. */
  nameMax: number;
  /** AWS has no operation that deletes a transform job. */
  deletes: boolean;
}

const ALL: readonly KindOfJob[] = [
  { kind: "training", title: "Training", resource: "TrainingJob", nameMax: 63, deletes: true },
  { kind: "processing", title: "Processing", resource: "ProcessingJob", nameMax: 63, deletes: true },
  { kind: "transform", title: "Transform", resource: "TransformJob", nameMax: 63, deletes: false },
  { kind: "tuning", title: "Tuning", resource: "HyperParameterTuningJob", nameMax: 32, deletes: true },
];

export const KINDS: Readonly<Record<Kind, KindOfJob>> = Object.fromEntries(
  ALL.map((each) => [each.kind, each]),
) as Record<Kind, KindOfJob>;

export const KIND_NAMES: readonly Kind[] = ALL.map((each) => each.kind);

/** What the store calls them, as `WaitForChanges` does. */
export const STORED: Readonly<Record<Kind, StoredKind>> = {
  training: "training-job",
  processing: "processing-job",
  transform: "transform-job",
  tuning: "hyper-parameter-tuning-job",
};

export function isKind(text: string): text is Kind {
  return Object.hasOwn(KINDS, text);
}

/** Path of a job's view, for `Link` and `href`: tuning jobs have a view of their own. */
export function pathOfJob(kind: string, name: string): string[] {
  return kind === "tuning" ? ["tuning", name] : ["jobs", kind, name];
}

/** Whether a job can still be stopped. */
export function isLive(status: string): boolean {
  return status === "InProgress" || status === "Stopping";
}
