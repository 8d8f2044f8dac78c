import { statusText, type JobRow } from "../job_rows";
import { toneOf } from "./state";

/** The status of a job, in words and in a color. */
export function Status({ row, place }: { row: JobRow; place?: number | undefined }) {
  return <span class={`status ${toneOf(row.Status)}`}>{statusText(row, place)}</span>;
}
