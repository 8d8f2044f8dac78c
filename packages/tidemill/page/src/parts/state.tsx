import { shown } from "../shown_text";

export type Tone = "good" | "bad" | "running" | "warn" | "quiet";

const TONES = new Map<string, Tone>([
  ...["Completed", "Succeeded", "InService", "Approved"].map((each): [string, Tone] => [each, "good"]),
  ...["Failed", "Rejected", "Damaged"].map((each): [string, Tone] => [each, "bad"]),
  ...["InProgress", "Executing", "Starting", "Creating", "Updating"].map((each): [string, Tone] => [each, "running"]),
  ...["Stopping", "PendingManualApproval"].map((each): [string, Tone] => [each, "warn"]),
]);

/** A status of SageMaker. Its color repeats what the word says. */
export function State({ value }: { value: string }) {
  return <span class={`status ${toneOf(value)}`}>{shown(value)}</span>;
}

/** Return the tone of a status, which is a class of the stylesheet. */
export function toneOf(status: string): Tone {
  return TONES.get(status) ?? "quiet";
}
