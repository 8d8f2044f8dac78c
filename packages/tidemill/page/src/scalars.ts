/** TensorBoard's scalars of a training job: a chart for each tag, with a series for each run that has it. */

import { overlaid } from "./metrics";
import type { Series } from "./series";
import { call, type CallOptions } from "./service";

/** One tag of one run, as `ListScalars` and `GetScalars` answer. */
export interface Scalar {
  Run: string;
  Tag: string;
  Count: number;
  NotFinite?: number;
  Steps?: number[];
  TimesMs?: number[];
  Values?: number[];
}

export interface JobScalars {
  Scalars: Scalar[];
  /** False while a large file is still being read: the next answer knows more. */
  Complete: boolean;
  Damage: string[];
}

export interface ScalarChart {
  title: string;
  series: Series[];
}

/** Which scalars a job has. */
export async function listScalars(job: string, options: CallOptions = {}): Promise<JobScalars> {
  return call<JobScalars>("tidemill", "ListScalars", { TrainingJobName: job }, options);
}

/** The points of some scalars. */
export async function pointsOf(
  job: string,
  scalars: readonly Scalar[],
  maxPoints: number,
  options: CallOptions = {},
): Promise<JobScalars> {
  const names = scalars.map(({ Run, Tag }) => ({ Run, Tag }));
  return call<JobScalars>("tidemill", "GetScalars", { TrainingJobName: job, Scalars: names, MaxPoints: maxPoints }, options);
}

/** The scalars whose tag or run has the text, without regard to case, grouped by tag in their order; all for no text. */
export function matching(scalars: readonly Scalar[], text: string): Map<string, Scalar[]> {
  const wanted = text.trim().toLowerCase();
  const tags = new Map<string, Scalar[]>();
  for (const scalar of scalars) {
    if (!`${scalar.Run}/${scalar.Tag}`.toLowerCase().includes(wanted)) continue;
    const found = tags.get(scalar.Tag);
    if (found) found.push(scalar);
    else tags.set(scalar.Tag, [scalar]);
  }
  return tags;
}

/** A chart for each tag. */
export function scalarCharts(scalars: readonly Scalar[]): ScalarChart[] {
  return [...matching(scalars, "")].map(([title, runs]) => ({
    title,
    series: runs.map(({ Run, Steps = [], TimesMs = [], Values = [] }) => ({
      label: Run,
      points: Steps.map((step, index) => [step, Values[index] ?? NaN] as const),
      times: TimesMs.map((at) => at / 1000),
    })),
  }));
}

export interface ComparedScalars {
  charts: ScalarChart[];
  /** Number of tags that fit the text, of which `charts` has the first. */
  tags: number;
  /** False while a large file is still being read. */
  isComplete: boolean;
}

/** The scalars of several jobs: a chart for each of the first tags that fit a text, with the series of all jobs. */
export async function comparedScalars(
  jobs: readonly string[],
  text: string,
  limits: { tags: number; points: number },
  options: CallOptions = {},
): Promise<ComparedScalars> {
  const listed = await Promise.all(jobs.map((job) => listScalars(job, options)));
  const fitting = listed.map(({ Scalars }) => matching(Scalars, text));
  const tags = [...new Set(fitting.flatMap((found) => [...found.keys()]))];
  const shown = tags.slice(0, limits.tags);
  const charts = await Promise.all(
    jobs.map(async (job, i) => {
      const wanted = shown.flatMap((tag) => fitting[i]?.get(tag) ?? []);
      return wanted.length ? scalarCharts((await pointsOf(job, wanted, limits.points, options)).Scalars) : [];
    }),
  );
  return { charts: overlaid(jobs, charts), tags: tags.length, isComplete: listed.every(({ Complete }) => Complete) };
}
