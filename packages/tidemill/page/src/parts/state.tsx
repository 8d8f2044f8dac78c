import { shown } from "../shown_text";

const GOOD = new Set(["Completed", "Succeeded", "InService", "Approved"]);
const BAD = new Set(["Failed", "Rejected"]);
const RUNNING = new Set(["InProgress", "Executing", "Starting", "Stopping", "Creating", "Updating"]);

/** A status of SageMaker. Its color repeats what the word says. */
export function State({ value }: { value: string }) {
  return <span class={`status ${toneOf(value)}`}>{shown(value)}</span>;
}

/** Return the tone of a status, which is a class of the stylesheet: good, bad, running or quiet. */
export function toneOf(status: string): "good" | "bad" | "running" | "quiet" {
  if (GOOD.has(status)) return "good";
  if (BAD.has(status)) return "bad";
  return RUNNING.has(status) ? "running" : "quiet";
}
