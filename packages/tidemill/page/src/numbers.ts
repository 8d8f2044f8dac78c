/** Numbers, durations and times as people read them. */

const UNITS: readonly [string, number][] = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60],
];

/** For example `2 h 05 min`, `3 min 07 s`, `12 s`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [index, [unit, size]] of UNITS.entries()) {
    if (whole < size) continue;
    const [smaller, part] = UNITS[index + 1] ?? ["s", 1];
    const rest = Math.floor((whole % size) / part);
    return `${Math.floor(whole / size)} ${unit} ${String(rest).padStart(2, "0")} ${smaller}`;
  }
  return `${whole} s`;
}

/** At most five significant digits; the exponent only where the digits would be many. */
export function figure(value: number): string {
  if (!Number.isFinite(value) || Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  const size = Math.abs(value);
  return size >= 1e7 || size < 1e-4 ? value.toExponential(3) : String(Number(value.toPrecision(5)));
}

/** For example `3.2 MiB`. */
export function bytes(size: number): string {
  const names = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let value = size;
  while (value >= 1024 && unit < names.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${size === 1 ? "byte" : names[unit]}`;
}

/** Date and time of this browser's zone, e.g. `2026-11-27 08:25:50`. */
export function time(seconds: number): string {
  const at = new Date(seconds * 1000);
  if (Number.isNaN(at.getTime())) return "";
  const two = (value: number): string => String(value).padStart(2, "0");
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${date} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
