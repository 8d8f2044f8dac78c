/** Several training jobs side by side: what differs between them, how they ended, and their curves. */

import { useState } from "preact/hooks";

import { rowsOf, scriptParameters, type Row } from "../differences";
import { useLoaded } from "../loaded";
import { setQuery } from "../location";
import { comparedCurves } from "../metrics";
import { duration, figure, time } from "../numbers";
import { CurveCharts, Swatch } from "../parts/curves";
import { Failure } from "../parts/failure";
import { Link } from "../parts/link";
import { State } from "../parts/state";
import { Text } from "../parts/text";
import type { ViewProps } from "../routes";
import { comparedScalars } from "../scalars";
import { call, isRefusal, ServiceError } from "../service";
import { shown } from "../shown_text";

interface Channel {
  ChannelName: string;
  DataSource?: { S3DataSource?: { S3Uri?: string }; FileSystemDataSource?: { DirectoryPath?: string } };
}

interface Training {
  TrainingJobName: string;
  TrainingJobStatus: string;
  CreationTime: number;
  TrainingStartTime?: number;
  TrainingTimeInSeconds?: number;
  FailureReason?: string;
  HyperParameters?: Record<string, string>;
  InputDataConfig?: readonly Channel[];
  ResourceConfig: { InstanceCount?: number; InstanceType?: string; InstanceGroups?: readonly object[] };
  AlgorithmSpecification: { TrainingImage?: string };
  Environment?: Record<string, string>;
  FinalMetricDataList?: readonly { MetricName: string; Value: number }[];
}

/** A column of the comparison: the job, or why it cannot be shown. */
type Column = { name: string; job: Training } | { name: string; error: ServiceError };

/** The log of a running job is read again after this time. */
const RUNNING_MS = 3000;
const READING_MS = 500;
const SCALARS = { tags: 12, points: 500 };
const MOST = 12;

export default function Compare({ query }: ViewProps) {
  const names = [...new Set(query.getAll("job"))].slice(0, MOST);
  const all = query.get("all") === "1";
  const { value: columns, error } = useLoaded(
    names.join("\n"),
    (signal) => Promise.all(names.map((name) => columnOf(name, signal))),
    { on: () => (names.length ? [{ kind: "training-job", names }] : []) },
  );
  const choose = (chosen: readonly string[]): void => setQuery({ job: chosen }, { push: true });
  return (
    <>
      <h1>Compare</h1>
      <AddJob chosen={names} onAdd={(name) => choose([...names, name])} />
      {error !== undefined && <Failure error={error} />}
      {!names.length && <p class="quiet">Add two jobs or more, or choose them in the table of jobs.</p>}
      {columns && names.length > 0 && (
        <>
          <Table columns={columns} all={all} onRemove={(name) => choose(names.filter((each) => each !== name))} />
          <ComparedCurves columns={columns} />
        </>
      )}
    </>
  );
}

async function columnOf(name: string, signal: AbortSignal): Promise<Column> {
  try {
    return { name, job: await call<Training>("sagemaker", "DescribeTrainingJob", { TrainingJobName: name }, { signal }) };
  } catch (error) {
    // One job that was deleted must not hide the others.
    if (error instanceof ServiceError && isRefusal(error)) return { name, error };
    throw error;
  }
}

function isRunning(column: Column): boolean {
  return "job" in column && ["InProgress", "Stopping"].includes(column.job.TrainingJobStatus);
}

/** A field that finds jobs by a part of their names. */
function AddJob({ chosen, onAdd }: { chosen: readonly string[]; onAdd: (name: string) => void }) {
  const [text, setText] = useState("");
  const { value: found } = useLoaded(`jobs ${text}`, async (signal) => {
    const input = { ...(text ? { NameContains: text } : {}), SortBy: "CreationTime", SortOrder: "Descending", MaxResults: 20 };
    const answer = await call<{ TrainingJobSummaries: readonly { TrainingJobName: string }[] }>("sagemaker", "ListTrainingJobs", input, { signal });
    return answer.TrainingJobSummaries.map((each) => each.TrainingJobName);
  });
  const add = (name: string): void => {
    if (!name || chosen.includes(name)) return;
    onAdd(name);
    setText("");
  };
  if (chosen.length >= MOST) return <p class="quiet">{MOST} jobs are the most that are compared at once.</p>;
  return (
    <form
      class="inline-form"
      onSubmit={(event) => {
        event.preventDefault();
        add(text.trim());
      }}
    >
      <label>
        Job{" "}
        <input list="compare-jobs" value={text} autocomplete="off" spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <datalist id="compare-jobs">
        {found?.filter((name) => !chosen.includes(name)).map((name) => <option key={name} value={name} />)}
      </datalist>
      <button type="submit">Add</button>
    </form>
  );
}

interface TableProps {
  columns: readonly Column[];
  all: boolean;
  onRemove: (name: string) => void;
}

function Table({ columns, all, onRemove }: TableProps) {
  const jobs = columns.map((column) => ("job" in column ? column.job : undefined));
  return (
    <>
      <label>
        <input type="checkbox" checked={all} onChange={(event) => setQuery({ all: event.currentTarget.checked ? "1" : null })} /> Also what
        is equal
      </label>
      <div class="wide" tabIndex={0} role="region" aria-label="Comparison of the jobs">
        <table class="plain compared">
          <thead>
            <tr>
              <th scope="col">Job</th>
              {columns.map((column, i) => (
                <th scope="col" key={column.name}>
                  <Swatch color={i} />{" "}
                  <Link to={["jobs", "training", column.name]}>{shown(column.name)}</Link>{" "}
                  <button type="button" aria-label={`Remove ${shown(column.name)}`} onClick={() => onRemove(column.name)}>
                    ×
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            <tr>
              <th scope="row">Status</th>
              {columns.map((column) => (
                <td key={column.name}>{"job" in column ? <JobStatus job={column.job} /> : <Text value={column.error.message} />}</td>
              ))}
            </tr>
            <Rows rows={rowsOf(jobs.map(facts))} all />
          </tbody>
          <Section title="Final metrics" rows={rowsOf(jobs.map(finalMetrics))} all columns={columns.length} />
          <Section title="Hyperparameters" rows={rowsOf(jobs.map((job) => scriptParameters(job?.HyperParameters)))} all={all} columns={columns.length} />
          <Section title="Inputs" rows={rowsOf(jobs.map(inputs))} all={all} columns={columns.length} />
          <Section title="Environment" rows={rowsOf(jobs.map((job) => ({ ...job?.Environment })))} all={all} columns={columns.length} />
        </table>
      </div>
    </>
  );
}

function JobStatus({ job }: { job: Training }) {
  return (
    <>
      <State value={job.TrainingJobStatus} />
      {job.FailureReason && (
        <p class="reason">
          <Text value={job.FailureReason} max={200} lines />
        </p>
      )}
    </>
  );
}

function facts(job: Training | undefined): Record<string, string> {
  if (!job) return {};
  const { InstanceCount, InstanceType, InstanceGroups } = job.ResourceConfig;
  const seconds = job.TrainingTimeInSeconds;
  return {
    Created: time(job.CreationTime),
    "Training time": seconds === undefined ? "–" : duration(seconds),
    Instances: InstanceGroups?.length ? JSON.stringify(InstanceGroups) : `${InstanceCount ?? 1} × ${InstanceType ?? "?"}`,
    Image: job.AlgorithmSpecification.TrainingImage?.split("/").at(-1) ?? "–",
  };
}

function finalMetrics(job: Training | undefined): Record<string, string> {
  return Object.fromEntries((job?.FinalMetricDataList ?? []).map((each) => [each.MetricName, figure(each.Value)]));
}

function inputs(job: Training | undefined): Record<string, string> {
  const channels = job?.InputDataConfig ?? [];
  return Object.fromEntries(
    channels.map(({ ChannelName, DataSource }) => [
      ChannelName,
      DataSource?.S3DataSource?.S3Uri ?? DataSource?.FileSystemDataSource?.DirectoryPath ?? "–",
    ]),
  );
}

/** The rows below a heading; without those that are equal unless `all`. A section that no job has is left out. */
function Section({ title, rows, all, columns }: { title: string; rows: readonly Row[]; all: boolean; columns: number }) {
  if (!rows.length) return null;
  const equal = all ? 0 : rows.filter((row) => !row.differs).length;
  return (
    <tbody>
      <tr>
        <th scope="rowgroup" colSpan={columns + 1} class="section">
          {title} {equal > 0 && <span class="quiet">({equal === rows.length ? "all" : equal} equal)</span>}
        </th>
      </tr>
      <Rows rows={rows} all={all} />
    </tbody>
  );
}

function Rows({ rows, all }: { rows: readonly Row[]; all: boolean }) {
  return (
    <>
      {rows
        .filter((row) => all || row.differs)
        .map((row) => (
          <tr key={row.name} class={row.differs ? "differs" : ""}>
            <th scope="row">
              <Text value={row.name} max={80} />
            </th>
            {row.values.map((value, i) => (
              <td key={i}>{value === undefined ? <span class="quiet">not set</span> : <Text value={value} max={200} />}</td>
            ))}
          </tr>
        ))}
    </>
  );
}

function ComparedCurves({ columns }: { columns: readonly Column[] }) {
  const names = columns.filter((column) => "job" in column).map((column) => column.name);
  const running = columns.some(isRunning);
  const { value: charts, error } = useLoaded(
    names.join("\n"),
    (signal) => comparedCurves(names, { signal }),
    { every: () => (running ? RUNNING_MS : undefined) },
  );
  return (
    <>
      <h2>Curves</h2>
      {error !== undefined && <Failure error={error} />}
      {charts && (charts.length ? <CurveCharts charts={charts} x="step" /> : <p class="quiet">These jobs define no metrics, or have logged none.</p>)}
      <ComparedScalars names={names} running={running} />
    </>
  );
}

/** TensorBoard's scalars of the jobs, if any has some. */
function ComparedScalars({ names, running }: { names: readonly string[]; running: boolean }) {
  const [text, setText] = useState("");
  const [hasMany, setHasMany] = useState(false);
  const { value, error } = useLoaded(
    `${text} ${names.join("\n")}`,
    async (signal) => {
      const found = await comparedScalars(names, text, SCALARS, { signal });
      setHasMany((before) => before || found.tags > SCALARS.tags);
      return found;
    },
    { every: ({ isComplete }) => (isComplete ? (running ? RUNNING_MS : undefined) : READING_MS) },
  );
  if (error === undefined && !hasMany && !value?.charts.length) return null;
  return (
    <>
      <h2>TensorBoard</h2>
      {error !== undefined && <Failure error={error} />}
      {hasMany && (
        <p>
          <label>
            Tags or runs with <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
          </label>{" "}
          {value && <span class="quiet">{`${value.charts.length} of ${value.tags} tags are shown`}</span>}
        </p>
      )}
      {value && value.charts.length > 0 && <CurveCharts charts={value.charts} x="step" />}
    </>
  );
}
