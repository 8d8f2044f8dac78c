/** The trainings of a tuning job: the axes of their hyperparameters, the best value over time, and selections. */
import { own } from "./own";
import { categoryScale, numberScale, type Scale, type Scaling } from "./scales";

/** One training of a tuning job, as ListTrainingJobsForHyperParameterTuningJob shows it. */
export interface TrialSummary {
  TrainingJobName: string;
  TrainingJobStatus: string;
  TrainingJobDefinitionName?: string;
  TuningJobName?: string;
  CreationTime: number;
  TrainingStartTime?: number;
  TrainingEndTime?: number;
  TunedHyperParameters: Record<string, string>;
  FinalHyperParameterTuningJobObjectiveMetric?: { Type?: string; MetricName: string; Value: number };
  ObjectiveStatus?: string;
  FailureReason?: string;
}

interface NumberRange {
  Name: string;
  MinValue: string;
  MaxValue: string;
  ScalingType?: string;
}

/** ParameterRanges of a tuning job, or HyperParameterRanges of one of its definitions. */
export interface ParameterRanges {
  IntegerParameterRanges?: readonly NumberRange[];
  ContinuousParameterRanges?: readonly NumberRange[];
  CategoricalParameterRanges?: readonly { Name: string; Values: readonly string[] }[];
  AutoParameters?: readonly { Name: string; ValueHint: string }[];
}

/** The axis of one hyperparameter or of the objective. `textOf` returns a trial's value, undefined if it has none. */
export interface Axis {
  name: string;
  scale: Scale;
  categories?: readonly string[];
  textOf(trial: TrialSummary): string | undefined;
}

/** The part of an axis that is selected, from 0 to 1. */
export type Brush = readonly [low: number, high: number];

/** A range that spans at least this factor is logarithmic if its ScalingType is Auto, as the search has it. */
const AUTO_LOG_RATIO = 1000;

/** Return the objective of a trial that has one. */
export function objectiveOf(trial: TrialSummary): number | undefined {
  return trial.FinalHyperParameterTuningJobObjectiveMetric?.Value;
}

/** Return the axes of the tuned hyperparameters, and the last one for the objective if any trial has a value. */
export function axesOf(ranges: readonly ParameterRanges[], trials: readonly TrialSummary[], metric: string): Axis[] {
  const axes = new Map<string, Axis>();
  const add = (axis: Axis): void => void (axes.has(axis.name) || axes.set(axis.name, axis));
  for (const each of ranges) {
    for (const range of [...(each.IntegerParameterRanges ?? []), ...(each.ContinuousParameterRanges ?? [])]) {
      const values = [Number(range.MinValue), Number(range.MaxValue)];
      add(numberAxis(range.Name, [...values, ...tunedNumbers(range.Name, trials)], scalingOf(range)));
    }
    for (const { Name, Values } of each.CategoricalParameterRanges ?? []) add(categoryAxis(Name, Values, trials));
    for (const { Name } of each.AutoParameters ?? []) add(observedAxis(Name, trials));
  }
  const values = trials.map(objectiveOf).filter((value) => value !== undefined);
  const scale = values.length ? numberScale(Math.min(...values), Math.max(...values)) : undefined;
  const objective: Axis[] = scale ? [{ name: metric, scale, textOf: (trial) => objectiveOf(trial)?.toString() }] : [];
  return [...axes.values(), ...objective];
}

/** Return the points of the best objective over the trials that have ended, and those of each trial's own. */
export function overTime(
  trials: readonly TrialSummary[],
  maximizes: boolean,
): { own: [number, number][]; best: [number, number][]; times: number[] } {
  const ended = trials
    .flatMap((trial) => {
      const value = objectiveOf(trial);
      return value === undefined ? [] : [{ at: trial.TrainingEndTime ?? trial.CreationTime, value }];
    })
    .sort((a, b) => a.at - b.at);
  let best = maximizes ? -Infinity : Infinity;
  const running = ended.map(({ value }, i): [number, number] => {
    best = maximizes ? Math.max(best, value) : Math.min(best, value);
    return [i + 1, best];
  });
  const own = ended.map(({ value }, i): [number, number] => [i + 1, value]);
  return { own, best: running, times: ended.map(({ at }) => at) };
}

/** Return whether a trial is inside all brushes; one without a value on a brushed axis is not. */
export function isInside(trial: TrialSummary, axes: readonly Axis[], brushes: ReadonlyMap<string, Brush>): boolean {
  return axes.every((axis) => {
    const brush = brushes.get(axis.name);
    if (!brush) return true;
    const place = placeOf(trial, axis);
    return place !== null && place >= brush[0] - 1e-9 && place <= brush[1] + 1e-9;
  });
}

/** Return where a trial is on an axis, from 0 to 1, or null if it has no value there. */
export function placeOf(trial: TrialSummary, axis: Axis): number | null {
  const text = axis.textOf(trial);
  return text === undefined ? null : axis.scale.at(text);
}

function scalingOf(range: NumberRange): Scaling {
  const given = range.ScalingType ?? "Auto";
  if (given !== "Auto") return given as Scaling;
  const [low, high] = [Number(range.MinValue), Number(range.MaxValue)];
  return low > 0 && high >= AUTO_LOG_RATIO * low ? "Logarithmic" : "Linear";
}

function tunedNumbers(name: string, trials: readonly TrialSummary[]): number[] {
  return trials.map((trial) => Number(own(trial.TunedHyperParameters, name))).filter(Number.isFinite);
}

function numberAxis(name: string, values: readonly number[], scaling: Scaling): Axis {
  const scale = numberScale(Math.min(...values), Math.max(...values), scaling);
  return { name, scale, textOf: (trial) => own(trial.TunedHyperParameters, name) };
}

function categoryAxis(name: string, given: readonly string[], trials: readonly TrialSummary[]): Axis {
  const observed = trials.flatMap((trial) => own(trial.TunedHyperParameters, name) ?? []);
  const values = [...new Set([...given, ...observed])];
  return { name, scale: categoryScale(values), categories: values, textOf: (trial) => own(trial.TunedHyperParameters, name) };
}

function observedAxis(name: string, trials: readonly TrialSummary[]): Axis {
  const texts = trials.flatMap((trial) => own(trial.TunedHyperParameters, name) ?? []);
  const numbers = tunedNumbers(name, trials);
  if (!numbers.length || numbers.length < texts.length) return categoryAxis(name, [], trials);
  return numberAxis(name, numbers, Math.min(...numbers) > 0 ? "Logarithmic" : "Linear");
}
