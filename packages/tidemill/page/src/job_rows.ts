/**
 * The rows of the table of jobs: kept up to date, filtered, sorted, in columns that one can choose. All of them are in
 * the browser, so that a filter or an order needs no request.
 */

import { type Kind, KINDS } from "./job_kinds";
import { duration, figure, time } from "./numbers";
import { own } from "./own";

/** A job as `ListJobs` returns it; times are seconds since the epoch. */
export interface JobRow {
  Kind: Kind;
  Name: string;
  Arn: string;
  Status: string;
  CreationTime: number;
  LastModifiedTime: number;
  SecondaryStatus?: string;
  StartTime?: number;
  EndTime?: number;
  Instances?: { InstanceType: string; InstanceCount: number }[];
  HyperParameters?: Record<string, string>;
  Tags?: Record<string, string>;
  Metrics?: Record<string, number>;
  FailureReason?: string;
  TuningJobName?: string;
  Attempt?: number;
  EndedTrainings?: number;
  MaxTrainings?: number;
}

export interface ShownJob {
  id: string;
  row: JobRow;
  /** What a search looks at, in lower case. */
  text: string;
}

export interface Filter {
  kinds: readonly string[];
  statuses: readonly string[];
  text: string;
}

export interface Order {
  column: string;
  descending: boolean;
}

export interface Column {
  id: string;
  title: string;
  /** Width in characters. */
  width: number;
  /** The text of a cell. */
  text: (row: JobRow, place: number | undefined, now: number) => string;
  /** What the column is sorted by: numbers before texts, and rows without a value always last. */
  key: (row: JobRow, place: number | undefined, now: number) => number | string | undefined;
  numeric?: boolean;
}

export const DEFAULT_COLUMNS: readonly string[] = ["name", "status", "duration", "instances", "metrics", "created"];

export function jobId(kind: string, name: string): string {
  return `${kind}/${name}`;
}

/** Seconds that a job has run, or waited if it has not begun. */
export function lasted(row: JobRow, now: number): number {
  return (row.EndTime ?? now) - (row.StartTime ?? row.CreationTime);
}

/** The value of a hyperparameter as the script gets it: the estimators of AWS send JSON. */
export function plainValue(text: string): string {
  if (!text.startsWith('"')) return text;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "string" ? value : text;
  } catch {
    return text;
  }
}

export class JobRows {
  private readonly jobs = new Map<string, ShownJob>();
  private readonly places = new Map<string, number>();
  private readonly names = { hp: new Set<string>(), metric: new Set<string>(), tag: new Set<string>() };

  get size(): number {
    return this.jobs.size;
  }

  get(id: string): ShownJob | undefined {
    return this.jobs.get(id);
  }

  merge(rows: readonly JobRow[]): void {
    for (const row of rows) {
      const id = jobId(row.Kind, row.Name);
      const known = this.jobs.get(id)?.row;
      // A slow answer must not bring back what a later one has replaced.
      if (known && row.LastModifiedTime < known.LastModifiedTime) continue;
      this.jobs.set(id, { id, row, text: searchedText(row) });
      for (const name of Object.keys(row.HyperParameters ?? {})) this.names.hp.add(name);
      for (const name of Object.keys(row.Metrics ?? {})) this.names.metric.add(name);
      for (const name of Object.keys(row.Tags ?? {})) this.names.tag.add(name);
    }
  }

  remove(id: string): void {
    this.jobs.delete(id);
  }

  /** Note which jobs of a kind wait, and at which place of the queue. */
  queue(kind: Kind, waiting: readonly { Name: string; Place: number }[]): void {
    for (const id of [...this.places.keys()]) if (id.startsWith(`${kind}/`)) this.places.delete(id);
    for (const each of waiting) this.places.set(jobId(kind, each.Name), each.Place);
  }

  place(id: string): number | undefined {
    // The queue is asked for only while jobs run, so it may still have one that has ended.
    return this.jobs.get(id)?.row.Status === "InProgress" ? this.places.get(id) : undefined;
  }

  /** The latest change of a job of a kind, from which a next look has to begin. */
  changed(kind: Kind): number {
    let latest = 0;
    for (const { row } of this.jobs.values()) {
      if (row.Kind === kind && row.LastModifiedTime > latest) latest = row.LastModifiedTime;
    }
    return latest;
  }

  namesOf(kind: Kind): Set<string> {
    const names = new Set<string>();
    for (const { row } of this.jobs.values()) if (row.Kind === kind) names.add(row.Name);
    return names;
  }

  count(status: string, kinds: readonly string[]): number {
    let found = 0;
    for (const { row } of this.jobs.values()) {
      if (row.Status === status && (!kinds.length || kinds.includes(row.Kind))) found += 1;
    }
    return found;
  }

  shown(filter: Filter, order: Order, now: number): ShownJob[] {
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    const found: ShownJob[] = [];
    for (const job of this.jobs.values()) {
      if (filter.kinds.length && !filter.kinds.includes(job.row.Kind)) continue;
      if (filter.statuses.length && !filter.statuses.includes(job.row.Status)) continue;
      if (words.every((word) => job.text.includes(word))) found.push(job);
    }
    return this.sorted(found, order, now);
  }

  /** All columns that there are: the fixed ones, and one for each hyperparameter, metric and tag. */
  columns(): Column[] {
    return [
      ...FIXED,
      ...[...this.names.metric].sort().map((name) => columnOf(`metric:${name}`)),
      ...[...this.names.hp].sort().map((name) => columnOf(`hp:${name}`)),
      ...[...this.names.tag].sort().map((name) => columnOf(`tag:${name}`)),
    ];
  }

  private sorted(jobs: ShownJob[], order: Order, now: number): ShownJob[] {
    const column = columnOf(order.column);
    const keyed = jobs.map((job) => ({ job, key: column.key(job.row, this.place(job.id), now) }));
    const sign = order.descending ? -1 : 1;
    // Comparing texts by code units: a comparison by the language's rules would take a tenth of a second.
    keyed.sort((a, b) => {
      if (a.key === b.key) return b.job.row.CreationTime - a.job.row.CreationTime;
      if (a.key === undefined) return 1;
      if (b.key === undefined) return -1;
      if (typeof a.key !== typeof b.key) return typeof a.key === "number" ? -1 : 1;
      return a.key < b.key ? -sign : sign;
    });
    return keyed.map((each) => each.job);
  }
}

/** A column by its id: one of the fixed ones, or `hp:NAME`, `metric:NAME`, `tag:KEY`. */
export function columnOf(id: string): Column {
  const fixed = FIXED.find((each) => each.id === id);
  if (fixed) return fixed;
  const colon = id.indexOf(":");
  const [kind, name] = [id.slice(0, colon), id.slice(colon + 1)];
  if (kind === "metric") {
    return {
      id,
      title: name,
      width: 12,
      numeric: true,
      text: (row) => figureOf(row.Metrics, name),
      key: (row) => own(row.Metrics, name),
    };
  }
  const values = kind === "hp" ? "HyperParameters" : "Tags";
  const text = (row: JobRow): string => plainValue(own(row[values], name) ?? "");
  return {
    id,
    title: name,
    width: 14,
    text,
    key: (row) => {
      const value = text(row);
      return value === "" ? undefined : Number.isNaN(Number(value)) ? value : Number(value);
    },
  };
}

export function isColumn(id: string): boolean {
  return FIXED.some((each) => each.id === id) || /^(hp|metric|tag):./.test(id);
}

export function statusText(row: JobRow, place?: number): string {
  if (place !== undefined) return `${row.Status} · ${place}${ordinal(place)} in the queue`;
  const phase = row.SecondaryStatus;
  return phase && phase !== row.Status && isRunning(row) ? `${row.Status} · ${phase}` : row.Status;
}

function isRunning(row: JobRow): boolean {
  return row.Status === "InProgress" || row.SecondaryStatus === "MaxRuntimeExceeded";
}

function ordinal(place: number): string {
  const tens = place % 100;
  if (tens > 10 && tens < 14) return "th";
  return { 1: "st", 2: "nd", 3: "rd" }[place % 10] ?? "th";
}

const FIXED: readonly Column[] = [
  { id: "name", title: "Name", width: 32, text: (row) => row.Name, key: (row) => row.Name },
  { id: "kind", title: "Kind", width: 11, text: (row) => KINDS[row.Kind].title, key: (row) => row.Kind },
  { id: "status", title: "Status", width: 24, text: statusText, key: (row, place) => place ?? statusText(row) },
  {
    id: "duration",
    title: "Duration",
    width: 13,
    numeric: true,
    text: (row, _, now) => duration(lasted(row, now)),
    key: (row, _, now) => lasted(row, now),
  },
  {
    id: "queue",
    title: "Queue",
    width: 8,
    numeric: true,
    text: (_, place) => (place === undefined ? "" : String(place)),
    key: (_, place) => place,
  },
  {
    id: "instances",
    title: "Instances",
    width: 20,
    text: instances,
    key: (row) => instances(row) || undefined,
  },
  { id: "metrics", title: "Last metrics", width: 34, text: progress, key: (row) => progress(row) || undefined },
  { id: "created", title: "Created", width: 20, text: (row) => time(row.CreationTime), key: (row) => row.CreationTime },
  {
    id: "ended",
    title: "Ended",
    width: 20,
    text: (row) => (row.EndTime ? time(row.EndTime) : ""),
    key: (row) => row.EndTime,
  },
  { id: "hyperparameters", title: "Hyperparameters", width: 40, text: pairs, key: (row) => pairs(row) || undefined },
  {
    id: "tags",
    title: "Tags",
    width: 24,
    text: (row) => joined(Object.entries(row.Tags ?? {})),
    key: (row) => joined(Object.entries(row.Tags ?? {})) || undefined,
  },
  { id: "tuning", title: "Tuning job", width: 24, text: (row) => row.TuningJobName ?? "", key: (row) => row.TuningJobName },
  {
    id: "attempt",
    title: "Attempt",
    width: 9,
    numeric: true,
    text: (row) => String(row.Attempt ?? ""),
    key: (row) => row.Attempt,
  },
  {
    id: "failure",
    title: "Failure",
    width: 40,
    text: (row) => row.FailureReason ?? "",
    key: (row) => row.FailureReason,
  },
];

function instances(row: JobRow): string {
  return (row.Instances ?? []).map((each) => `${each.InstanceCount} × ${each.InstanceType}`).join(", ");
}

function progress(row: JobRow): string {
  if (row.EndedTrainings !== undefined) {
    return `${row.EndedTrainings}${row.MaxTrainings ? ` of ${row.MaxTrainings}` : ""} trainings`;
  }
  return joined(Object.entries(row.Metrics ?? {}).map(([name, value]) => [name, figure(value)]));
}

function pairs(row: JobRow): string {
  return joined(Object.entries(row.HyperParameters ?? {}).map(([name, value]) => [name, plainValue(value)]));
}

function joined(entries: readonly (readonly [string, string])[]): string {
  return entries.map(([name, value]) => `${name}=${value}`).join("  ");
}

function figureOf(values: Record<string, number> | undefined, name: string): string {
  const value = own(values, name);
  return value === undefined ? "" : figure(value);
}

function searchedText(row: JobRow): string {
  const texts = [row.Name, row.Status, row.SecondaryStatus ?? "", row.TuningJobName ?? "", instances(row)];
  return [...texts, pairs(row), joined(Object.entries(row.Tags ?? {}))].join("\n").toLowerCase();
}
