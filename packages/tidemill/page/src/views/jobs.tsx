import { useEffect, useMemo, useState } from "preact/hooks";

import { onChange } from "../changes";
import { JOB_INTERESTS, JobFeed, ROWS_MAX } from "../job_feed";
import { pathOfJob } from "../job_kinds";
import { columnOf, DEFAULT_COLUMNS, isColumn, jobId, type JobRow, JobRows, type ShownJob } from "../job_rows";
import { go, href, setQuery } from "../location";
import { Failure } from "../parts/failure";
import { JobActions } from "../parts/job_actions";
import { JobFilters } from "../parts/job_filters";
import { Link } from "../parts/link";
import { Rows, type RowColumn } from "../parts/rows";
import { Status } from "../parts/status";
import { useNarrow } from "../parts/width";
import type { ViewProps } from "../routes";
import { useSelection } from "../selection";
import { currentSession } from "../service";
import { cut, cutMiddle, shown } from "../shown_text";
import { useEvery, useNow } from "../visible";
import "../jobs.css";

const LIVE_LOOK_MS = 5000;
/** A telephone has room for these; what else was chosen is reached by scrolling the table. */
const NARROW_COLUMNS = ["name", "status"];
const NARROW_NAME_CHARS = 20;
const NAME_CHARS = 40;
const CELL_CHARS = 200;
const COLUMNS_STORED = "tidemill-job-columns";

/** The table of all jobs. */
export default function Jobs({ query }: ViewProps) {
  const { jobs, version, feed } = useJobs();
  const look = (): void => feed.hear(null);
  const filter = { kinds: query.getAll("kind"), statuses: query.getAll("status"), text: query.get("q") ?? "" };
  const order = orderOf(query.get("sort") ?? "-created");
  const chosen = chosenColumns(query.get("columns"));
  const isNarrow = useNarrow();
  const [selected, select, selectNone] = useSelection();
  const [liveCount, setLiveCount] = useState(0);
  const now = useNow(liveCount > 0);
  // Only an order by duration depends on the time, and it would be restless in each second.
  const rows = useMemo(() => jobs.shown(filter, order, now), [version, query.toString()]);
  useEffect(() => setLiveCount(jobs.count("InProgress", []) + jobs.count("Stopping", [])), [version]);

  const open = (job: ShownJob): void => go(href(pathOfJob(job.row.Kind, job.row.Name)));

  return (
    <>
      <h1>Jobs</h1>
      <JobFilters jobs={jobs} filter={filter} chosen={chosen} version={version} onColumns={storeColumns} />
      <Toolbar
        count={`${rows.length.toLocaleString("en")} of ${jobs.size.toLocaleString("en")} jobs`}
        feed={feed}
        selected={rows.filter((job) => selected.has(job.id)).map((job) => job.row)}
        onDone={(deleted) => {
          for (const job of deleted) jobs.remove(jobId(job.Kind, job.Name));
          selectNone();
          look();
        }}
      />
      {feed.error !== null && <Failure error={feed.error} retry={look} />}
      <Rows
        label="Jobs"
        rows={rows}
        columns={(isNarrow ? narrowColumns(chosen) : chosen).map((id) => rowColumn(id, jobs, now, isNarrow))}
        keyOf={(job) => job.id}
        nameOf={(job) => shown(job.row.Name)}
        order={order}
        onOrder={(column) => {
          const descending = order.column === column ? !order.descending : column !== "name";
          setQuery({ sort: `${descending ? "-" : ""}${column}` });
        }}
        selected={selected}
        onSelect={select}
        onOpen={open}
        onKey={(event) => {
          if (event.key !== "/") return false;
          document.getElementById("jobs-search")?.focus();
          return true;
        }}
        empty={feed.isLoading ? "" : <Empty hasJobs={jobs.size > 0} />}
      />
    </>
  );
}

interface ToolbarProps {
  count: string;
  feed: JobFeed;
  selected: readonly JobRow[];
  onDone: (deleted: readonly JobRow[]) => void;
}

function Toolbar({ count, feed, selected, onDone }: ToolbarProps) {
  const trainings = selected.filter((row) => row.Kind === "training").map((row) => row.Name);
  const one = selected.length === 1 ? selected[0] : undefined;
  return (
    <div class="toolbar">
      <span role="status" class="count">
        {feed.isLoading ? "Loading … " : ""}
        {count}
        {feed.isCut ? `, the newest ${ROWS_MAX.toLocaleString("en")} of each kind` : ""}
        {selected.length ? `, ${selected.length} selected` : ""}
      </span>
      <JobActions jobs={selected} onDone={onDone} />
      <button type="button" disabled={!trainings.length} onClick={() => go(href(["compare"], { job: trainings }))}>
        Compare
      </button>
      <button
        type="button"
        disabled={!one || currentSession()?.readOnly}
        onClick={() => one && go(href(["jobs", one.Kind, one.Name], { tab: "again" }))}
      >
        Run again with …
      </button>
    </div>
  );
}

function Empty({ hasJobs }: { hasJobs: boolean }) {
  if (hasJobs) return <p>No job matches the filter.</p>;
  return (
    <p>
      There are no jobs yet. <code>tidemill train train.py</code> starts one.
    </p>
  );
}

function rowColumn(id: string, jobs: JobRows, now: number, isNarrow: boolean): RowColumn<ShownJob> {
  const column = columnOf(id);
  const text = (job: ShownJob): string => column.text(job.row, jobs.place(job.id), now);
  const cells: Record<string, RowColumn<ShownJob>["cell"]> = {
    name: ({ row }) => (
      <Link to={pathOfJob(row.Kind, row.Name)} tabIndex={-1} title={shown(row.Name)}>
        {shown(cutMiddle(row.Name, isNarrow ? NARROW_NAME_CHARS : NAME_CHARS))}
      </Link>
    ),
    status: (job) => <Status row={job.row} place={jobs.place(job.id)} />,
  };
  return {
    id,
    title: shown(cutMiddle(column.title, 24)),
    width: isNarrow ? (NARROW_WIDTHS[id] ?? column.width) : column.width,
    numeric: column.numeric ?? false,
    cell: cells[id] ?? ((job) => shown(cut(text(job), CELL_CHARS).text)),
  };
}

/** The name has the room that is left. */
const NARROW_WIDTHS: Readonly<Record<string, number>> = { name: 0, status: 14 };

function narrowColumns(chosen: readonly string[]): string[] {
  const others = chosen.join() === DEFAULT_COLUMNS.join() ? [] : chosen.filter((id) => !NARROW_COLUMNS.includes(id));
  return [...NARROW_COLUMNS, ...others];
}

/** All jobs, loaded in pages, then kept up to date. */
function useJobs() {
  const [version, setVersion] = useState(0);
  const changed = (): void => setVersion((count) => count + 1);
  const { jobs, feed, control } = useMemo(() => {
    const own = new AbortController();
    const rows = new JobRows();
    return { jobs: rows, feed: new JobFeed(rows, changed, own.signal), control: own };
  }, []);
  useEffect(() => {
    const end = onChange(JOB_INTERESTS, (names) => feed.hear(names));
    return () => {
      end();
      control.abort();
    };
  }, []);
  useEvery(async () => {
    await feed.lookAtLive();
    return LIVE_LOOK_MS;
  });
  return { jobs, version, feed };
}

function orderOf(text: string): { column: string; descending: boolean } {
  const descending = text.startsWith("-");
  const column = descending ? text.slice(1) : text;
  return isColumn(column) ? { column, descending } : { column: "created", descending: true };
}

function chosenColumns(inAddress: string | null): string[] {
  const text = inAddress ?? localStorage.getItem(COLUMNS_STORED) ?? "";
  const found = text.split(",").map(decodeName).filter(isColumn);
  return found.length ? [...new Set(found)] : [...DEFAULT_COLUMNS];
}

function storeColumns(columns: readonly string[]): void {
  // A name can have a comma.
  const text = columns.map((id) => id.replaceAll("%", "%25").replaceAll(",", "%2C")).join(",");
  localStorage.setItem(COLUMNS_STORED, text);
  setQuery({ columns: text });
}

function decodeName(text: string): string {
  return text.replaceAll("%2C", ",").replaceAll("%25", "%");
}

