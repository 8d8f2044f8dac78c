import { statusText, type JobRow } from "../job_rows";

const LOOKS: Readonly<Record<string, string>> = {
  Completed: "good",
  Failed: "bad",
  Damaged: "bad",
  Stopped: "quiet",
  Stopping: "warn",
  InProgress: "running",
};

/** The status of a job, in words and in a color. */
export function Status({ row, place }: { row: JobRow; place?: number | undefined }) {
  return <span class={`status ${LOOKS[row.Status] ?? "quiet"}`}>{statusText(row, place)}</span>;
}
