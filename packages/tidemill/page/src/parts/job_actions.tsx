import { useState } from "preact/hooks";

import { deleteJob, stopJob } from "../job_calls";
import { isLive, KINDS } from "../job_kinds";
import type { JobRow } from "../job_rows";
import { cutMiddle, shown } from "../shown_text";
import { Confirmed } from "./confirmed";
import { Failure } from "./failure";

type Deed = "Stop" | "Delete";
const NAMED = 8;
const DEEDS = { Stop: stopJob, Delete: deleteJob } as const;
const EFFECTS: Readonly<Record<Deed, string>> = {
  Stop: "A job that is stopped keeps what it has written; it cannot go on.",
  Delete: "The record of a deleted job is gone. Its log and its objects stay.",
};

interface JobActionsProps {
  jobs: readonly JobRow[];
  /** Called after a deed, with the jobs that are gone. */
  onDone: (deleted: readonly JobRow[]) => void;
}

/** Stop and delete jobs, after a question. */
export function JobActions({ jobs, onDone }: JobActionsProps) {
  const [error, setError] = useState<unknown>(null);
  const act = async (deed: Deed, chosen: readonly JobRow[]): Promise<void> => {
    const done: JobRow[] = [];
    let refused: unknown = null;
    for (const job of chosen) {
      try {
        await DEEDS[deed](job.Kind, job.Name);
        done.push(job);
      } catch (failure) {
        // The others need not wait for one that has ended meanwhile.
        refused ??= failure;
      }
    }
    setError(refused);
    onDone(deed === "Delete" ? done : []);
  };
  const chosen: Readonly<Record<Deed, readonly JobRow[]>> = {
    Stop: jobs.filter((job) => job.Status === "InProgress"),
    Delete: jobs.filter((job) => !isLive(job.Status) && KINDS[job.Kind].deletes),
  };
  return (
    <>
      {(["Stop", "Delete"] as const).map((deed) => (
        <Asked key={deed} deed={deed} jobs={chosen[deed]} run={() => act(deed, chosen[deed])} />
      ))}
      {error !== null && <Failure error={error} />}
    </>
  );
}

function Asked({ deed, jobs, run }: { deed: Deed; jobs: readonly JobRow[]; run: () => Promise<void> }) {
  return (
    <Confirmed
      label={jobs.length > 1 ? `${deed} ${jobs.length}` : deed}
      action={deed}
      question={`${deed} ${jobs.length === 1 ? "this job" : `${jobs.length} jobs`}?`}
      isDisabled={!jobs.length}
      run={run}
    >
      <ul>
        {jobs.slice(0, NAMED).map((job) => (
          <li key={`${job.Kind}/${job.Name}`}>{shown(cutMiddle(job.Name, 63))}</li>
        ))}
        {jobs.length > NAMED && <li>and {jobs.length - NAMED} more</li>}
      </ul>
      <p>{EFFECTS[deed]}</p>
    </Confirmed>
  );
}
