import { useState } from "preact/hooks";

import { deleteJob, stopJob } from "../job_calls";
import { isLive, KINDS } from "../job_kinds";
import type { JobRow } from "../job_rows";
import { currentSession } from "../service";
import { cutMiddle, shown } from "../shown_text";
import { Confirm } from "./confirm";
import { Failure } from "./failure";

type Deed = "Stop" | "Delete";
const NAMED = 8;

interface JobActionsProps {
  jobs: readonly JobRow[];
  /** Called after a deed, with the jobs that are gone. */
  onDone: (deleted: readonly JobRow[]) => void;
}

/** Stop and delete jobs, after a question. */
export function JobActions({ jobs, onDone }: JobActionsProps) {
  const [asked, setAsked] = useState<Deed | null>(null);
  const [error, setError] = useState<unknown>(null);
  if (currentSession()?.readOnly) return null;
  const stoppable = jobs.filter((job) => job.Status === "InProgress");
  const deletable = jobs.filter((job) => !isLive(job.Status) && KINDS[job.Kind].deletes);
  const chosen = asked === "Stop" ? stoppable : deletable;
  const act = async (): Promise<void> => {
    const deed = asked === "Stop" ? stopJob : deleteJob;
    const done: JobRow[] = [];
    setAsked(null);
    setError(null);
    for (const job of chosen) {
      try {
        await deed(job.Kind, job.Name);
        done.push(job);
      } catch (failure) {
        setError(failure);
        break;
      }
    }
    onDone(asked === "Delete" ? done : []);
  };
  return (
    <>
      <button type="button" disabled={!stoppable.length} onClick={() => setAsked("Stop")}>
        Stop{stoppable.length > 1 ? ` ${stoppable.length}` : ""}…
      </button>
      <button type="button" disabled={!deletable.length} onClick={() => setAsked("Delete")}>
        Delete{deletable.length > 1 ? ` ${deletable.length}` : ""}…
      </button>
      {error !== null && <Failure error={error} />}
      {asked && (
        <Confirm
          title={`${asked} ${chosen.length === 1 ? "this job" : `${chosen.length} jobs`}?`}
          action={asked}
          onConfirm={() => void act()}
          onCancel={() => setAsked(null)}
        >
          <ul>
            {chosen.slice(0, NAMED).map((job) => (
              <li key={`${job.Kind}/${job.Name}`}>{shown(cutMiddle(job.Name, 63))}</li>
            ))}
            {chosen.length > NAMED && <li>and {chosen.length - NAMED} more</li>}
          </ul>
          <p>
            {asked === "Stop"
              ? "A job that is stopped keeps what it has written; it cannot go on."
              : "The record of a deleted job is gone. Its log and its objects stay."}
          </p>
        </Confirm>
      )}
    </>
  );
}
