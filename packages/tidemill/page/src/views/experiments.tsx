/** Experiments, and one of them: its trial components with parameters, metrics and curves. */

import { useMemo, useState } from "preact/hooks";

import {
  componentCurves,
  componentsOf,
  lastMetricsOf,
  parametersOf,
  titleOf,
  trainingOf,
  type Component,
} from "../components";
import { useLoaded } from "../loaded";
import { go, href } from "../location";
import { figure, time } from "../numbers";
import { own } from "../own";
import { CurveCharts } from "../parts/curves";
import { Failure } from "../parts/failure";
import { Link } from "../parts/link";
import { PlainTable } from "../parts/plain_table";
import { Rows, type RowColumn } from "../parts/rows";
import { State } from "../parts/state";
import { rowsUpTo, useRows } from "../row_pages";
import type { ViewProps } from "../routes";
import { useSelection } from "../selection";
import { cut, shown } from "../shown_text";
import { compared, sortable, type Key } from "../sorting";

interface ExperimentSummary {
  ExperimentName: string;
  DisplayName?: string;
  CreationTime: number;
  LastModifiedTime: number;
}

interface ComponentColumn extends RowColumn<Component> {
  sortsBy: (component: Component) => Key;
}

const RUNNING_MS = 5000;
/** Components whose curves are drawn before one selects others. */
const DRAWN = 6;
const MOST_DRAWN = 16;
const MOST_COLUMNS = 24;
const CELL = 40;

export default function Experiments({ params }: ViewProps) {
  const { name } = params;
  return name ? <OneExperiment name={name} /> : <AllExperiments />;
}

function AllExperiments() {
  const { value, error, reload, more } = useRows("experiments", (limit, signal) =>
    rowsUpTo<ExperimentSummary>("ListExperiments", "ExperimentSummaries", { SortBy: "CreationTime", SortOrder: "Descending" }, limit, signal),
  );
  return (
    <>
      <h1>Experiments</h1>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {value && !value.rows.length && <p class="quiet">There are no experiments.</p>}
      {value && value.rows.length > 0 && (
        <PlainTable label="Experiments" titles={["Experiment", "Created", "Changed"]}>
          {value.rows.map((each) => (
            <tr key={each.ExperimentName}>
              <th scope="row">
                <Link to={["experiments", each.ExperimentName]}>{shown(each.DisplayName ?? each.ExperimentName)}</Link>
              </th>
              <td>{time(each.CreationTime)}</td>
              <td>{time(each.LastModifiedTime)}</td>
            </tr>
          ))}
        </PlainTable>
      )}
      {value?.token && (
        <button type="button" onClick={more}>
          Show more
        </button>
      )}
    </>
  );
}

function OneExperiment({ name }: { name: string }) {
  const { value, error, reload } = useLoaded(name, (signal) => componentsOf(name, { signal }), {
    every: (components) => (components.some((each) => each.Status?.PrimaryStatus === "InProgress") ? RUNNING_MS : undefined),
  });
  return (
    <>
      <p class="trail">
        <Link to={["experiments"]}>Experiments</Link>
      </p>
      <h1>{shown(name)}</h1>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {value && <Components components={value} />}
    </>
  );
}

function Components({ components }: { components: readonly Component[] }) {
  const [order, setOrder] = useState({ column: "created", descending: true });
  const [selected, select] = useSelection();
  const columns = useMemo(() => columnsOf(components), [components]);
  const by = columns.find((column) => column.id === order.column)?.sortsBy ?? created;
  const rows = [...components].sort((a, b) => compared(by(a), by(b), order.descending));
  const chosen = rows.filter((each) => selected.has(each.TrialComponentName));
  const drawn = (chosen.length ? chosen : rows).slice(0, chosen.length ? MOST_DRAWN : DRAWN);
  const jobs = chosen.flatMap((each) => trainingOf(each) ?? []);
  return (
    <div class="trainings">
      <button type="button" disabled={jobs.length < 2} onClick={() => go(href(["compare"], { job: jobs }))}>
        Compare jobs
      </button>
      <Rows
        label="Components"
        rows={rows}
        columns={columns}
        keyOf={(each) => each.TrialComponentName}
        nameOf={(each) => shown(titleOf(each))}
        order={order}
        onOrder={(column) => setOrder({ column, descending: order.column === column ? !order.descending : true })}
        selected={selected}
        onSelect={select}
        empty={<p>No trial of this experiment has a component.</p>}
      />
      <Curves components={drawn} isChosen={chosen.length > 0} />
    </div>
  );
}

function Curves({ components, isChosen }: { components: readonly Component[]; isChosen: boolean }) {
  const key = components.map((each) => `${each.TrialComponentName} ${JSON.stringify(lastMetricsOf(each))}`).join("\n");
  const { value, error } = useLoaded(key, (signal) => componentCurves(components, { signal }));
  return (
    <>
      <h2>Curves</h2>
      <p class="quiet">
        {isChosen ? `Those of ${components.length} selected components.` : `Those of the first ${components.length} components; select others above.`}
      </p>
      {error !== undefined && <Failure error={error} />}
      {value && (value.length ? <CurveCharts charts={value} x="step" /> : <p class="quiet">They have no metrics by step.</p>)}
    </>
  );
}

function columnsOf(components: readonly Component[]): ComponentColumn[] {
  const parameters = namesIn(components.map(parametersOf));
  const metrics = namesIn(components.map(lastMetricsOf));
  return [
    { id: "name", title: "Component", width: 36, sortsBy: titleOf, cell: (each) => <Name component={each} /> },
    { id: "trial", title: "Trial", width: 24, sortsBy: trialOf, cell: (each) => shown(cut(trialOf(each), CELL).text) },
    { id: "status", title: "Status", width: 13, sortsBy: statusOf, cell: (each) => <State value={statusOf(each)} /> },
    ...metrics.map((name): ComponentColumn => {
      const of = (each: Component): number | undefined => own(lastMetricsOf(each), name);
      return { id: `metric ${name}`, title: shown(name), width: 16, numeric: true, sortsBy: of, cell: (each) => figureOf(of(each)) };
    }),
    ...parameters.map((name): ComponentColumn => {
      const of = (each: Component): string | undefined => own(parametersOf(each), name);
      return { id: `parameter ${name}`, title: shown(name), width: 18, sortsBy: (each) => sortable(of(each)), cell: (each) => shown(cut(of(each) ?? "–", CELL).text) };
    }),
    { id: "created", title: "Created", width: 22, sortsBy: created, cell: (each) => time(each.CreationTime) },
  ];
}

function Name({ component }: { component: Component }) {
  const job = trainingOf(component);
  const title = shown(titleOf(component));
  return job === undefined ? (
    <>{title}</>
  ) : (
    <Link to={["jobs", "training", job]} tabIndex={-1}>
      {title}
    </Link>
  );
}

function namesIn(rows: readonly Readonly<Record<string, unknown>>[]): string[] {
  return [...new Set(rows.flatMap((row) => Object.keys(row)))].sort().slice(0, MOST_COLUMNS);
}

function trialOf(component: Component): string {
  return component.Parents?.[0]?.TrialName ?? "";
}

function statusOf(component: Component): string {
  return component.Status?.PrimaryStatus ?? "";
}

function created(component: Component): number {
  return component.CreationTime;
}

function figureOf(value: number | undefined): string {
  return value === undefined ? "–" : figure(value);
}
