/** The requests to an endpoint over time, from CloudWatch's namespace AWS/SageMaker. */

import type { Series } from "./series";
import { call, type CallOptions } from "./service";

/** Windows that can be chosen, in minutes, each with the period of its points in seconds. */
export const WINDOWS: readonly (readonly [minutes: number, periodS: number, title: string])[] = [
  [15, 10, "15 minutes"],
  [60, 60, "1 hour"],
  [360, 300, "6 hours"],
];

const PERCENTILES = ["p50", "p90", "p99"] as const;

interface Result {
  Id: string;
  Timestamps: number[];
  Values: number[];
}

export interface EndpointCurves {
  rate: Series[];
  latency: Series[];
  errors: Series[];
}

export async function endpointCurves(
  endpoint: string,
  variants: readonly string[],
  minutes: number,
  options?: CallOptions,
): Promise<EndpointCurves> {
  const periodS = WINDOWS.find((each) => each[0] === minutes)?.[1] ?? 60;
  const endS = Math.floor(Date.now() / 1000 / periodS) * periodS;
  const input = {
    MetricDataQueries: variants.flatMap((variant, index) => queriesOf(endpoint, variant, index, periodS)),
    StartTime: endS - minutes * 60,
    EndTime: endS + periodS,
    ScanBy: "TimestampAscending",
  };
  const { MetricDataResults } = await call<{ MetricDataResults: Result[] }>("cloudwatch", "GetMetricData", input, options);
  // The period that goes on has only some of its requests: as a rate they would look like a decline.
  return curvesOf(MetricDataResults, variants, endS - minutes * 60, endS - periodS, periodS);
}

function queriesOf(endpoint: string, variant: string, index: number, periodS: number): object[] {
  const Dimensions = [
    { Name: "EndpointName", Value: endpoint },
    { Name: "VariantName", Value: variant },
  ];
  const query = (id: string, MetricName: string, Stat: string): object => ({
    Id: `${id}_${index}`,
    MetricStat: { Metric: { Namespace: "AWS/SageMaker", MetricName, Dimensions }, Period: periodS, Stat },
  });
  return [
    query("rate", "Invocations", "Sum"),
    query("errors", "InvocationModelErrors", "Sum"),
    ...PERCENTILES.map((each) => query(each, "ModelLatency", each)),
  ];
}

export function curvesOf(
  results: readonly Result[],
  variants: readonly string[],
  startS: number,
  endS: number,
  periodS: number,
): EndpointCurves {
  const points = new Map(results.map((each) => [each.Id, new Map(each.Timestamps.map((at, i) => [at, each.Values[i] ?? 0]))]));
  const name = (variant: string, what = ""): string => [variants.length > 1 ? variant : "", what].filter(Boolean).join(" ");
  // A period without a request has no point: it had none per second, and no latency.
  const perSecond = (id: string, variant: string): Series => ({
    label: name(variant) || variant,
    points: timesOf(startS, endS, periodS).map((at) => [at, (points.get(id)?.get(at) ?? 0) / periodS] as const),
  });
  return {
    rate: variants.map((variant, index) => perSecond(`rate_${index}`, variant)),
    errors: variants.map((variant, index) => perSecond(`errors_${index}`, variant)),
    latency: variants.flatMap((variant, index) =>
      PERCENTILES.map((each) => ({
        label: name(variant, each),
        points: [...(points.get(`${each}_${index}`) ?? [])].map(([at, us]) => [at, us / 1000] as const),
      })),
    ),
  };
}

function timesOf(startS: number, endS: number, periodS: number): number[] {
  const first = Math.floor(startS / 60) * 60; // as CloudWatch rounds the begin of a window
  return Array.from({ length: Math.floor((endS - first) / periodS) + 1 }, (_, index) => first + index * periodS);
}
