/** The curves of a training job: the metrics that its log has by its metric definitions. */

import type { Series } from "./series";
import { call, type CallOptions } from "./service";

/** One metric of one instance, as `GetMetricPoints` answers. */
interface PointSeries {
  MetricName: string;
  Instance: number;
  Steps: readonly number[];
  Times: readonly number[];
  Values: readonly number[];
}

/** A metric's curves: one, or one for each instance that logs it. */
export interface MetricCurves {
  title: string;
  series: Series[];
}

/** Return the curves of a job's metrics so far, by name. A job without metric definitions has none. */
export async function metricCurves(job: string, options: CallOptions = {}): Promise<MetricCurves[]> {
  const answer = await call<{ Series: readonly PointSeries[] }>("tidemill", "GetMetricPoints", { TrainingJobName: job }, options);
  return grouped(answer.Series);
}

/** Return the curves of several jobs, one chart for each metric, with a series for each job that has it. */
export async function comparedCurves(jobs: readonly string[], options: CallOptions = {}): Promise<MetricCurves[]> {
  return overlaid(jobs, await Promise.all(jobs.map((job) => metricCurves(job, options))));
}

/** Return charts of several jobs as one for each title; a series is called by its job, and by its own name if there are several. */
export function overlaid(jobs: readonly string[], found: readonly (readonly MetricCurves[])[]): MetricCurves[] {
  const charts = new Map<string, Series[]>();
  found.forEach((curves, i) => {
    for (const { title, series } of curves) {
      const renamed = series.map((each) => ({ ...each, label: series.length > 1 ? `${jobs[i]} ${each.label}` : jobs[i]! }));
      charts.set(title, [...(charts.get(title) ?? []), ...renamed]);
    }
  });
  return [...charts].map(([title, series]) => ({ title, series }));
}

function grouped(found: readonly PointSeries[]): MetricCurves[] {
  const charts = new Map<string, PointSeries[]>();
  for (const each of found) charts.set(each.MetricName, [...(charts.get(each.MetricName) ?? []), each]);
  return [...charts].map(([title, all]) => ({
    title,
    series: all.map((each) => ({
      label: all.length > 1 ? `algo-${each.Instance}` : title,
      points: each.Steps.map((step, i) => [step, each.Values[i]!] as const),
      times: each.Times,
    })),
  }));
}
