import type { Phase } from "../job_calls";
import { duration, time } from "../numbers";
import { shown } from "../shown_text";

const LOOKS: Readonly<Record<string, string>> = {
  Starting: "starting",
  Pending: "waiting",
  DownloadingTrainingImage: "starting",
  Downloading: "starting",
  Training: "running",
  Uploading: "ending",
  Stopping: "warn",
  Interrupted: "warn",
  Restarting: "warn",
  Completed: "good",
  Failed: "bad",
};

/** The phases of a job as a time line: a bar whose parts are as long as they took, and the same in words. */
export function Phases({ phases, now }: { phases: readonly Phase[]; now: number }) {
  const lasting = phases.map((phase) => ({ phase, seconds: Math.max(0, (phase.EndTime ?? now) - phase.StartTime) }));
  const total = lasting.reduce((sum, each) => sum + each.seconds, 0) || 1;
  return (
    <div class="phases">
      <div class="bar" aria-hidden="true">
        {lasting.map(({ phase, seconds }, index) => (
          <span
            key={index}
            class={LOOKS[phase.Status] ?? "quiet"}
            style={{ flexGrow: seconds / total }}
            title={`${phase.Status}: ${duration(seconds)}`}
          />
        ))}
      </div>
      <ol>
        {lasting.map(({ phase, seconds }, index) => (
          <li key={index} class={LOOKS[phase.Status] ?? "quiet"}>
            <strong>{phase.Status}</strong> {seconds >= 1 && duration(seconds)}
            <span class="quiet">
              {" "}
              {time(phase.StartTime)} · {shown(phase.Message)}
            </span>
          </li>
        ))}
      </ol>
    </div>
  );
}
