import { useState } from "preact/hooks";

import { decoded } from "../differences";
import { href } from "../location";
import { duration, figure, time } from "../numbers";
import { shown } from "../shown_text";
import { objectiveOf, type TrialSummary } from "../trials";
import { Link } from "./link";
import { State } from "./state";
import { Text } from "./text";

interface TrialTableProps {
  trials: readonly TrialSummary[];
  /** Tuned hyperparameters. */
  names: readonly string[];
  metric: string;
  best: string | undefined;
}

type Key = number | string | undefined;

/** Rows that are in the document at first: a tuning job can have hundreds of trainings. */
const ROWS = 100;
/** Most jobs that the comparison of the best trainings begins with. */
const COMPARED = 5;

/** The trainings of a tuning job; a heading sorts by its column. */
export function TrialTable({ trials, names, metric, best }: TrialTableProps) {
  const [order, setOrder] = useState({ column: "Created", down: true });
  const [limit, setLimit] = useState(ROWS);
  const columns = columnsOf(names, metric);
  const by = columns.find(([title]) => title === order.column)?.[1] ?? ((trial: TrialSummary) => trial.CreationTime);
  const sorted = [...trials].sort((a, b) => compared(by(a), by(b), order.down));
  const first = sorted.slice(0, COMPARED).map((trial) => trial.TrainingJobName);
  return (
    <>
      {first.length > 1 && (
        <p>
          <a href={href(["compare"], { job: first })}>Compare the first {first.length}</a>
        </p>
      )}
      <div class="wide" tabIndex={0} role="region" aria-label="Trainings">
        <table class="plain trainings">
          <thead>
            <tr>
              {columns.map(([title]) => (
                <th key={title} scope="col" aria-sort={order.column === title ? (order.down ? "descending" : "ascending") : "none"}>
                  <button type="button" onClick={() => setOrder({ column: title, down: order.column === title ? !order.down : true })}>
                    {shown(title)} {order.column === title && (order.down ? "▼" : "▲")}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {sorted.slice(0, limit).map((trial) => (
              <Row key={trial.TrainingJobName} {...{ trial, names }} isBest={trial.TrainingJobName === best} />
            ))}
          </tbody>
        </table>
      </div>
      {sorted.length > limit && (
        <button type="button" onClick={() => setLimit(limit + 10 * ROWS)}>
          Show more of {sorted.length}
        </button>
      )}
    </>
  );
}

function Row({ trial, names, isBest }: { trial: TrialSummary; names: readonly string[]; isBest: boolean }) {
  const value = objectiveOf(trial);
  const took = tookOf(trial);
  return (
    <tr class={isBest ? "best" : ""}>
      <th scope="row">
        <Link to={["jobs", "training", trial.TrainingJobName]}>{shown(trial.TrainingJobName)}</Link>
        {isBest && <span class="badge">best</span>}
      </th>
      <td>
        <State value={trial.TrainingJobStatus} />
        {trial.FailureReason && (
          <div class="reason">
            <Text value={trial.FailureReason} max={120} />
          </div>
        )}
      </td>
      <td>{value === undefined ? "–" : figure(value)}</td>
      {names.map((name) => (
        <td key={name}>
          <Text value={decoded(trial.TunedHyperParameters[name] ?? "–")} max={60} />
        </td>
      ))}
      <td>{took === undefined ? "–" : duration(took)}</td>
      <td>{time(trial.CreationTime)}</td>
    </tr>
  );
}

function columnsOf(names: readonly string[], metric: string): [string, (trial: TrialSummary) => Key][] {
  return [
    ["Training", (trial) => trial.TrainingJobName],
    ["Status", (trial) => trial.TrainingJobStatus],
    [metric, objectiveOf],
    ...names.map((name): [string, (trial: TrialSummary) => Key] => [name, (trial) => sortable(trial.TunedHyperParameters[name])]),
    ["Duration", tookOf],
    ["Created", (trial) => trial.CreationTime],
  ];
}

function tookOf(trial: TrialSummary): number | undefined {
  if (trial.TrainingStartTime === undefined || trial.TrainingEndTime === undefined) return undefined;
  return trial.TrainingEndTime - trial.TrainingStartTime;
}

function sortable(text: string | undefined): Key {
  return text === undefined || text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text);
}

/** Values that are missing come last in both orders. */
function compared(a: Key, b: Key, down: boolean): number {
  if (a === undefined || b === undefined) return Number(a === undefined) - Number(b === undefined);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return down ? -order : order;
}
