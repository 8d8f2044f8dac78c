/** The labels of axes. */

import { duration, figure } from "./numbers";

/** A number without idle zeros, e.g. `1e-7` instead of `1.000e-7`. */
export function tickFigure(value: number): string {
  return figure(value).replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "");
}

/** A step with all of its digits: those of long runs would otherwise look equal. */
export function stepText(step: number): string {
  return Number.isInteger(step) ? String(step) : tickFigure(step);
}

/** Seconds since a beginning: with fractions below a minute. */
export function elapsed(seconds: number): string {
  return Math.abs(seconds) < 60 ? `${Number(seconds.toPrecision(3))} s` : duration(seconds);
}

/** The labels of times (epoch seconds) on one axis: with the date if they span more than a day. */
export function axisTimes(times: readonly number[]): string[] {
  const span = (times.at(-1) ?? 0) - (times[0] ?? 0);
  const seconds: Intl.DateTimeFormatOptions = span < 600 ? { second: "2-digit" } : {};
  const day: Intl.DateTimeFormatOptions = span > 86_400 ? { month: "short", day: "numeric" } : {};
  const format = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...seconds, ...day });
  return times.map((each) => format.format(each * 1000));
}
