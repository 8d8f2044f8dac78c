/** The axes of plots that are not curves: where a value is, from 0 to 1, and which values are labelled. */
import { tickFigure } from "./axis_text";

export interface Tick {
  at: number;
  text: string;
}

/** An axis. `at` returns the place of a value's text from 0 (low) to 1 (high), or null if the axis does not have it. */
export interface Scale {
  at(text: string): number | null;
  /** The text of the value at a place. */
  text(place: number): string;
  ticks: readonly Tick[];
}

/** SageMaker's ScalingType of a hyperparameter's range. */
export type Scaling = "Linear" | "Logarithmic" | "ReverseLogarithmic";

const TICKS = 5;

/** Return the axis of the numbers from `low` to `high`. */
export function numberScale(low: number, high: number, scaling: Scaling = "Linear"): Scale {
  const [begin, end] = [forward(low, scaling), forward(high, scaling)];
  const at = (value: number): number | null => {
    const place = forward(value, scaling);
    if (!Number.isFinite(place)) return null;
    return end > begin ? (place - begin) / (end - begin) : 0.5;
  };
  const values = scaling === "Logarithmic" ? logarithmic(low, high) : linear(low, high);
  const ticks = values.flatMap((value) => {
    const place = at(value);
    return place === null || place < -1e-9 || place > 1 + 1e-9 ? [] : [{ at: place, text: tickFigure(value) }];
  });
  return {
    at: (text) => (text.trim() === "" ? null : at(Number(text))),
    text: (place) => String(Number(backward(begin + place * (end - begin), scaling).toPrecision(4))),
    ticks,
  };
}

/** Return the axis of texts, in their order and with equal distances. */
export function categoryScale(values: readonly string[]): Scale {
  const places = new Map(values.map((value, i) => [value, values.length > 1 ? i / (values.length - 1) : 0.5]));
  return {
    at: (text) => places.get(text) ?? null,
    text: (place) => values[Math.round(place * (values.length - 1))] ?? "",
    ticks: [...places].map(([text, at]) => ({ at, text })),
  };
}

/** Return round values from `low` to `high`, about `TICKS` of them. */
export function linear(low: number, high: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((each) => each * power >= rough) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  // Multiples are computed from whole numbers: a running sum would show 0.30000000000000004.
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Return powers of ten from `low` to `high`; between too few of them also their multiples by 2 and 5. */
export function logarithmic(low: number, high: number): number[] {
  if (!(low > 0 && high > low)) return [low];
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const every = Math.max(1, Math.ceil((last - first) / (2 * TICKS)));
  const multiples = last - first <= 3 ? [1, 2, 5] : [1];
  const values: number[] = [];
  for (let power = first; power <= last; power += every) {
    for (const each of multiples) values.push(Number((each * 10 ** power).toPrecision(12)));
  }
  const inside = values.filter((value) => value >= low && value <= high);
  return inside.length > 1 ? inside : linear(low, high);
}

function forward(value: number, scaling: Scaling): number {
  if (scaling === "Logarithmic") return Math.log(value);
  return scaling === "ReverseLogarithmic" ? -Math.log1p(-value) : value;
}

function backward(place: number, scaling: Scaling): number {
  if (scaling === "Logarithmic") return Math.exp(place);
  return scaling === "ReverseLogarithmic" ? -Math.expm1(-place) : place;
}
