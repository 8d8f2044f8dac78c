/** The trial components of an experiment: their parameters, metrics and curves. */

import { nameInArn } from "./arn";
import { metricCurves, overlaid, type MetricCurves } from "./metrics";
import { figure } from "./numbers";
import { batchGetMetrics, call, isRefusal, type CallOptions } from "./service";

/** A trial component, as Search finds it. */
export interface Component {
  TrialComponentName: string;
  TrialComponentArn: string;
  DisplayName?: string;
  Source?: { SourceArn: string; SourceType?: string };
  Status?: { PrimaryStatus?: string; Message?: string };
  CreationTime: number;
  StartTime?: number;
  EndTime?: number;
  Parameters?: Record<string, { StringValue?: string; NumberValue?: number }>;
  Metrics?: readonly { MetricName: string; Last?: number }[];
  Parents?: readonly { TrialName: string; ExperimentName: string }[];
}

interface QueryResult {
  XAxisValues?: readonly number[];
  MetricValues?: readonly number[];
}

const PAGE = 100;
/** Most components that one experiment shows. */
const COMPONENTS = 2000;
/** Most queries of one request to SageMaker's metrics. */
const QUERIES = 100;
const TRAINING = "SageMakerTrainingJob";

/** Return the components of an experiment, the newest first. */
export async function componentsOf(experiment: string, options: CallOptions = {}): Promise<Component[]> {
  const filter = { Name: "Parents.ExperimentName", Operator: "Equals", Value: experiment };
  const input = { Resource: "ExperimentTrialComponent", SearchExpression: { Filters: [filter] }, SortBy: "CreationTime", MaxResults: PAGE };
  const found: Component[] = [];
  let token: string | undefined;
  do {
    const answer = await call<{ Results: { TrialComponent: Component }[]; NextToken?: string }>(
      "sagemaker",
      "Search",
      { ...input, ...(token ? { NextToken: token } : {}) },
      options,
    );
    found.push(...answer.Results.map((each) => each.TrialComponent));
    token = answer.NextToken;
  } while (token && found.length < COMPONENTS);
  return found;
}

/** Return the text of each parameter. */
export function parametersOf(component: Component): Record<string, string> {
  const entries = Object.entries(component.Parameters ?? {});
  return Object.fromEntries(entries.map(([name, { StringValue, NumberValue }]) => [name, StringValue ?? figure(NumberValue ?? NaN)]));
}

/** Return the last value of each metric. */
export function lastMetricsOf(component: Component): Record<string, number> {
  const metrics = component.Metrics ?? [];
  return Object.fromEntries(metrics.flatMap(({ MetricName, Last }) => (Last === undefined ? [] : [[MetricName, Last]])));
}

/** Return the training job that a component tracks, if it tracks one. */
export function trainingOf(component: Component): string | undefined {
  return component.Source?.SourceType === TRAINING ? nameInArn(component.Source.SourceArn) : undefined;
}

/** Return the name that people gave a component. */
export function titleOf(component: Component): string {
  return component.DisplayName ?? component.TrialComponentName;
}

/** Return the curves of several components, one chart for each metric: by the steps that were put, or those of the job's log. */
export async function componentCurves(components: readonly Component[], options: CallOptions = {}): Promise<MetricCurves[]> {
  const put = components.filter((each) => trainingOf(each) === undefined);
  const queries = put.flatMap((component) => Object.keys(lastMetricsOf(component)).map((metric) => ({ component, metric })));
  const results = new Map<Component, MetricCurves[]>(components.map((each) => [each, []]));
  for (let begin = 0; begin < queries.length; begin += QUERIES) {
    const batch = queries.slice(begin, begin + QUERIES);
    const asked = batch.map(({ component, metric }) => queryOf(component, metric));
    const answer = await batchGetMetrics<{ MetricQueryResults: readonly QueryResult[] }>(asked, options);
    batch.forEach(({ component, metric }, i) => {
      const { XAxisValues = [], MetricValues = [] } = answer.MetricQueryResults[i] ?? {};
      const points = XAxisValues.map((x, n) => [x, MetricValues[n] ?? NaN] as const);
      if (points.length) results.get(component)?.push({ title: metric, series: [{ label: metric, points }] });
    });
  }
  const jobs = components.map(async (component) => {
    const job = trainingOf(component);
    return job === undefined ? (results.get(component) ?? []) : metricCurves(job, options).catch(noneIfRefused);
  });
  return overlaid(distinctTitles(components), await Promise.all(jobs));
}

/** The job was deleted, or this key may not see it. */
function noneIfRefused(error: unknown): MetricCurves[] {
  if (isRefusal(error)) return [];
  throw error;
}

/** Return the names that people gave, with those of the components where they are not distinct. */
export function distinctTitles(components: readonly Component[]): string[] {
  const titles = components.map(titleOf);
  return components.map(({ TrialComponentName }, i) => {
    const title = titles[i]!;
    return titles.indexOf(title) === titles.lastIndexOf(title) ? title : `${title} (${TrialComponentName})`;
  });
}

function queryOf(component: Component, metric: string): object {
  const step = "IterationNumber";
  return { MetricName: metric, ResourceArn: component.TrialComponentArn, MetricStat: "Last", Period: step, XAxisType: step };
}
