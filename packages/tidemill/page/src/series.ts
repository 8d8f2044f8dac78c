/** The points of curves: smoothing, thinning, and the x values that several series share. */

/** One curve. `times` has the epoch seconds of each point if the x of the points is a step. */
export interface Series {
  label: string;
  points: readonly (readonly [x: number, y: number])[];
  times?: readonly number[];
  /** Default: a line through the points. `stepped` values hold until the next point. */
  style?: "stepped" | "points";
}

/** What a point's x is: a step, a time (epoch seconds), or the seconds since the first point of its series. */
export type XKind = "step" | "time" | "relative";

/** The points of one series by ascending x. */
export interface Columns {
  x: Float64Array;
  y: Float64Array;
}

export interface Summary {
  count: number;
  first: number;
  last: number;
  min: number;
  max: number;
}

/** x of all series, and their values there: null is a gap, undefined is a place where only other series have a point. */
export type Aligned = [number[], ...(number | null | undefined)[][]];

/** The greatest x that has a place: beyond, neighboring steps would be one number. Points without a time have none. */
const FARTHEST = 1e15;

/** Return the points of a series by ascending x; steps repeat and go back when a job starts again. */
export function columnsOf(series: Series, given: "step" | "time", wanted: XKind): Columns {
  const { points, times } = series;
  const count = points.length;
  const x = new Float64Array(count);
  const y = new Float64Array(count);
  const byTime = wanted !== given;
  let ascending = true;
  for (let i = 0; i < count; i++) {
    const point = points[i]!;
    x[i] = byTime && given === "step" ? (times?.[i] ?? NaN) : point[0];
    y[i] = point[1];
    ascending &&= Math.abs(x[i]!) <= FARTHEST && (i === 0 || x[i]! >= x[i - 1]!);
  }
  const sorted = ascending ? { x, y } : byX(x, y);
  return wanted === "relative" ? sinceFirst(sorted) : sorted;
}

/**
 * Return the exponential moving average that TensorBoard draws.
 *
 * The average begins at 0, so each value is divided by the weight that the points so far have together; without that the
 * first values would be drawn towards 0. Values that are not finite are returned as they are and change no average.
 *
 * @param weight Weight of the earlier points: 0 (no smoothing) to below 1.
 */
export function smoothed(values: Float64Array, weight: number): Float64Array {
  const result = new Float64Array(values.length);
  let average = 0;
  let earlier = 1;
  for (let i = 0; i < values.length; i++) {
    const value = values[i]!;
    if (!Number.isFinite(value)) {
      result[i] = value;
      continue;
    }
    average = average * weight + (1 - weight) * value;
    earlier *= weight;
    result[i] = average / (1 - earlier);
  }
  return result;
}

/**
 * Return the indices of the points to draw between two x: of each bucket of equal width the first, the last and those with
 * the least and the greatest value, so that no peak is lost.
 *
 * One point on each side of the window is kept, so that lines run to its edges.
 */
export function thinned({ x, y }: Columns, from: number, to: number, buckets: number): number[] {
  const begin = Math.max(0, lowerBound(x, from) - 1);
  let end = lowerBound(x, to);
  while (end < x.length && x[end]! <= to) end++;
  end = Math.min(x.length, end + 1);
  if (end - begin <= 4 * buckets) return Array.from({ length: end - begin }, (_, i) => begin + i);
  const kept: number[] = [];
  const width = (to - from) / buckets || 1;
  for (let i = begin; i < end; ) {
    const first = i;
    const bucket = Math.floor((x[first]! - from) / width);
    let [low, high, min, max] = [first, first, Infinity, -Infinity];
    for (; i < end && Math.floor((x[i]! - from) / width) === bucket; i++) {
      const value = y[i]!;
      if (!Number.isFinite(value)) continue;
      if (value < min) [min, low] = [value, i];
      if (value > max) [max, high] = [value, i];
    }
    kept.push(...new Set([first, low, high, i - 1].sort((a, b) => a - b)));
  }
  return kept;
}

/** The sizes of values that a chart draws: its axes have no ticks beyond, and would be computed without end. */
const [LEAST, GREATEST] = [1e-30, 1e30];

/**
 * Return the points of several series at all their x; values that cannot be drawn are gaps: those that are not finite, or,
 * if `log`, not positive.
 */
export function aligned(all: readonly Columns[], log: boolean): Aligned {
  const places = [...new Set(all.flatMap(({ x }) => Array.from(x)))].sort((a, b) => a - b);
  const at = new Map(places.map((x, index) => [x, index]));
  const values = all.map(({ x, y }) => {
    const row: (number | null | undefined)[] = new Array(places.length).fill(undefined);
    for (let i = 0; i < x.length; i++) {
      row[at.get(x[i]!)!] = drawnValue(y[i]!, log);
    }
    return row;
  });
  return [places, ...values];
}

function drawnValue(value: number, log: boolean): number | null {
  const size = Math.abs(value);
  if (!(size <= GREATEST)) return null;
  if (log) return value >= LEAST ? value : null;
  return size >= LEAST ? value : 0;
}

/** Return the points with these indices. */
export function picked({ x, y }: Columns, indices: readonly number[]): Columns {
  return { x: Float64Array.from(indices, (i) => x[i]!), y: Float64Array.from(indices, (i) => y[i]!) };
}

/** Return the first and the last x of all series, or undefined if there is no point. */
export function extent(all: readonly Columns[]): [number, number] | undefined {
  let [low, high] = [Infinity, -Infinity];
  for (const { x } of all) {
    if (!x.length) continue;
    low = Math.min(low, x[0]!);
    high = Math.max(high, x[x.length - 1]!);
  }
  return low <= high ? [low, high] : undefined;
}

/** Return what a table says of a series; least and greatest are those of the finite values. */
export function summaryOf({ y }: Columns): Summary {
  let [min, max] = [Infinity, -Infinity];
  for (const value of y) {
    if (!Number.isFinite(value)) continue;
    if (value < min) min = value;
    if (value > max) max = value;
  }
  const some = min <= max;
  const [first, last] = [y[0] ?? NaN, y[y.length - 1] ?? NaN];
  return { count: y.length, first, last, min: some ? min : NaN, max: some ? max : NaN };
}

/** Return the number of values that a logarithmic axis cannot show. */
export function notPositive(all: readonly Columns[]): number {
  let count = 0;
  for (const { y } of all) for (const value of y) if (value < LEAST) count++;
  return count;
}

/** Return the index of the point nearest to an x, or -1 without points. */
export function nearest(x: ArrayLike<number>, wanted: number): number {
  const after = lowerBound(x, wanted);
  if (after === x.length) return after - 1;
  return after > 0 && wanted - x[after - 1]! < x[after]! - wanted ? after - 1 : after;
}

function byX(x: Float64Array, y: Float64Array): Columns {
  const order = Array.from(x.keys()).filter((i) => Math.abs(x[i]!) <= FARTHEST);
  order.sort((a, b) => x[a]! - x[b]! || a - b);
  return picked({ x, y }, order);
}

function sinceFirst({ x, y }: Columns): Columns {
  const first = x[0] ?? 0;
  return { x: x.map((each) => each - first), y };
}

function lowerBound(x: ArrayLike<number>, wanted: number): number {
  let [low, high] = [0, x.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle]! < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
