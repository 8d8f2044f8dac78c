import { useState } from "preact/hooks";

import { decoded } from "../differences";
import { go, href } from "../location";
import { duration, figure, time } from "../numbers";
import { own } from "../own";
import { useSelection } from "../selection";
import { cut, shown } from "../shown_text";
import { compared, sortable, type Key } from "../sorting";
import { objectiveOf, type TrialSummary } from "../trials";
import { Link } from "./link";
import { Rows, type RowColumn } from "./rows";
import { State } from "./state";

interface TrialTableProps {
  trials: readonly TrialSummary[];
  /** Tuned hyperparameters. */
  names: readonly string[];
  metric: string;
  best: string | undefined;
}

interface TrialColumn extends RowColumn<TrialSummary> {
  sortsBy: (trial: TrialSummary) => Key;
}

/** Most jobs that are compared at once. */
const COMPARED = 12;
const CELL = 40;

/** The trainings of a tuning job, which one selects to compare them. */
export function TrialTable({ trials, names, metric, best }: TrialTableProps) {
  const [order, setOrder] = useState({ column: "created", descending: true });
  const [selected, select] = useSelection();
  const columns = columnsOf(names, metric, best);
  const by = columns.find((column) => column.id === order.column)?.sortsBy ?? created;
  const rows = [...trials].sort((a, b) => compared(by(a), by(b), order.descending));
  const chosen = rows.map(nameOf).filter((name) => selected.has(name));
  return (
    <div class="trainings">
      <button
        type="button"
        disabled={chosen.length === 0 || chosen.length > COMPARED}
        onClick={() => go(href(["compare"], { job: chosen }))}
      >
        Compare{chosen.length > COMPARED ? `: at most ${COMPARED}` : ""}
      </button>
      <Rows
        label="Trainings"
        rows={rows}
        columns={columns}
        keyOf={nameOf}
        nameOf={(trial) => shown(trial.TrainingJobName)}
        order={order}
        onOrder={(column) => setOrder({ column, descending: order.column === column ? !order.descending : true })}
        selected={selected}
        onSelect={select}
        onOpen={(trial) => go(href(["jobs", "training", trial.TrainingJobName]))}
        empty={<p>No training is selected.</p>}
      />
    </div>
  );
}

function columnsOf(names: readonly string[], metric: string, best: string | undefined): TrialColumn[] {
  return [
    { id: "name", title: "Training", width: 38, sortsBy: nameOf, cell: (trial) => <Name trial={trial} isBest={trial.TrainingJobName === best} /> },
    { id: "status", title: "Status", width: 13, sortsBy: (trial) => trial.TrainingJobStatus, cell: (trial) => <Status trial={trial} /> },
    { id: "objective", title: shown(metric), width: 14, numeric: true, sortsBy: objectiveOf, cell: shownObjective },
    ...names.map(
      (name): TrialColumn => ({
        id: `tuned ${name}`,
        title: shown(name),
        width: 18,
        sortsBy: (trial) => sortable(own(trial.TunedHyperParameters, name)),
        cell: (trial) => shown(cut(decoded(own(trial.TunedHyperParameters, name) ?? "–"), CELL).text),
      }),
    ),
    { id: "duration", title: "Duration", width: 14, sortsBy: tookOf, cell: shownDuration },
    { id: "created", title: "Created", width: 22, sortsBy: created, cell: (trial) => time(trial.CreationTime) },
  ];
}

function Name({ trial, isBest }: { trial: TrialSummary; isBest: boolean }) {
  return (
    <>
      <Link to={["jobs", "training", trial.TrainingJobName]} tabIndex={-1}>
        {shown(trial.TrainingJobName)}
      </Link>{" "}
      {isBest && <span class="badge">best</span>}
    </>
  );
}

function Status({ trial }: { trial: TrialSummary }) {
  return (
    <span title={shown(trial.FailureReason ?? "")}>
      <State value={trial.TrainingJobStatus} />
    </span>
  );
}

function shownObjective(trial: TrialSummary): string {
  const value = objectiveOf(trial);
  return value === undefined ? "–" : figure(value);
}

function shownDuration(trial: TrialSummary): string {
  const took = tookOf(trial);
  return took === undefined ? "–" : duration(took);
}

function nameOf(trial: TrialSummary): string {
  return trial.TrainingJobName;
}

function created(trial: TrialSummary): number {
  return trial.CreationTime;
}

function tookOf(trial: TrialSummary): number | undefined {
  if (trial.TrainingStartTime === undefined || trial.TrainingEndTime === undefined) return undefined;
  return trial.TrainingEndTime - trial.TrainingStartTime;
}
