/**
 * Curves of one or more series: smoothing, a logarithmic axis, x by step or time, and the values at a cursor.
 *
 * `<Curves>` is one chart with its own controls; `<CurveCharts>` are several charts that share them.
 */

import { useMemo, useState } from "preact/hooks";

import { elapsed, stepText, tickFigure } from "../axis_text";
import { time } from "../numbers";
import {
  aligned,
  columnsOf,
  extent,
  nearest,
  notPositive,
  picked,
  smoothed,
  thinned,
  type Columns,
  type Series,
  type XKind,
} from "../series";
import { shown } from "../shown_text";
import { CurveTable } from "./curve_table";
import { colorOf, dashesOf, Plot } from "./plot";

export type { Series } from "../series";

export interface CurveOptions {
  /** Weight of earlier points, 0 to 0.99. */
  smoothing: number;
  log: boolean;
  x: XKind;
}

interface ChartProps {
  series: readonly Series[];
  /** What the x of the points is: a step, or epoch seconds. */
  x: "step" | "time";
  title?: string;
  height?: number;
  /** Returns the text of a y; default: a number of about five digits. */
  format?: (value: number) => string;
}

export interface CurvesProps extends ChartProps {
  /** Options of controls elsewhere; without them the chart has its own. */
  options?: CurveOptions;
}

export interface CurveChartsProps {
  /** Each with a format of its own, if the values of the charts differ in their units. */
  charts: readonly { title: string; series: readonly Series[]; format?: (value: number) => string }[];
  x: "step" | "time";
  format?: (value: number) => string;
}

const NAMES: Record<XKind, string> = { step: "step", time: "time", relative: "relative time" };

/** One chart. */
export function Curves({ options, ...chart }: CurvesProps) {
  const [own, setOwn] = useState<CurveOptions>({ smoothing: 0, log: false, x: chart.x });
  if (options) return <Chart {...chart} options={options} />;
  return (
    <div class="curves">
      <CurveControls options={own} onChange={setOwn} kinds={kindsOf(chart.x, [chart.series])} />
      <Chart {...chart} options={own} />
    </div>
  );
}

/** A chart for each title, side by side where there is room, with one row of controls. */
export function CurveCharts({ charts, x, format }: CurveChartsProps) {
  const [options, setOptions] = useState<CurveOptions>({ smoothing: 0, log: false, x });
  return (
    <div class="curves">
      <CurveControls options={options} onChange={setOptions} kinds={kindsOf(x, charts.map((each) => each.series))} />
      <div class="curve-charts">
        {charts.map((each) => (
          <Chart key={each.title} {...(format ? { format } : {})} {...each} x={x} options={options} />
        ))}
      </div>
    </div>
  );
}

interface ControlsProps {
  options: CurveOptions;
  onChange: (options: CurveOptions) => void;
  kinds: readonly XKind[];
}

function CurveControls({ options, onChange, kinds }: ControlsProps) {
  const change = (values: Partial<CurveOptions>): void => onChange({ ...options, ...values });
  return (
    <div class="curve-controls" role="group" aria-label="How the curves are drawn">
      <label>
        Smoothing{" "}
        <input
          type="range"
          min="0"
          max="0.99"
          step="0.01"
          value={options.smoothing}
          onInput={(event) => change({ smoothing: event.currentTarget.valueAsNumber })}
        />
        <output>{options.smoothing.toFixed(2)}</output>
      </label>
      <label>
        <input type="checkbox" checked={options.log} onChange={(event) => change({ log: event.currentTarget.checked })} />{" "}
        Logarithmic
      </label>
      {kinds.length > 1 && (
        <label>
          By{" "}
          <select value={options.x} onChange={(event) => change({ x: event.currentTarget.value as XKind })}>
            {kinds.map((kind) => (
              <option key={kind} value={kind}>
                {NAMES[kind]}
              </option>
            ))}
          </select>
        </label>
      )}
    </div>
  );
}

/** The values of a chart: raw, and as they are drawn. */
interface Drawn {
  series: readonly Series[];
  raw: readonly Columns[];
  drawn: readonly Columns[];
}

function Chart({ series, x, title = "Curves", height = 220, format = tickFigure, options }: ChartProps & { options: CurveOptions }) {
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [zoom, setZoom] = useState<{ kind: XKind; window: [number, number] } | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const [width, setWidth] = useState(300);
  const raw = useMemo(() => series.map((each) => columnsOf(each, x, options.x)), [series, x, options.x]);
  const drawn = useMemo(
    () => (options.smoothing ? raw.map((each) => ({ x: each.x, y: smoothed(each.y, options.smoothing) })) : raw),
    [raw, options.smoothing],
  );
  const visible = series.map((each, i) => (hidden.has(each.label) ? -1 : i)).filter((i) => i >= 0);
  const all = extent(visible.map((i) => raw[i]!));
  const window = (zoom?.kind === options.x ? zoom.window : undefined) ?? all;
  const { data, lines } = useMemo(
    () => linesOf({ series, raw, drawn }, visible, window ?? [0, 1], width, options.log),
    [raw, drawn, visible.join(), window?.join(), width, options.log],
  );
  const onWindow = (next: [number, number] | null): void => setZoom(next && { kind: options.x, window: next });
  const toggle = (label: string): void => {
    const next = new Set(hidden);
    if (!next.delete(label)) next.add(label);
    setHidden(next);
  };
  const at = cursor === null ? null : shownX(cursor, options.x);
  const values = series.map((_, i) => valueAt(drawn[i]!, cursor));
  const spoken = visible.map((i) => `${shown(series[i]!.label)} ${values[i] === undefined ? "no value" : format(values[i]!)}`);
  const lost = options.log ? notPositive(visible.map((i) => raw[i]!)) : 0;
  if (!all && !hidden.size) return <EmptyChart title={title} />;
  return (
    <figure class="curve" aria-label={shown(title)}>
      <figcaption>{shown(title)}</figcaption>
      {window && (
        <div
          class="curve-plot"
          role="slider"
          tabIndex={0}
          aria-label={`${shown(title)}: position of the cursor`}
          aria-valuemin={window[0]}
          aria-valuemax={window[1]}
          aria-valuenow={cursor ?? window[0]}
          aria-valuetext={at === null ? "no position; arrow keys move, plus and minus zoom" : `${at}: ${spoken.join(", ")}`}
          onKeyDown={(event) => {
            if (onKey(event.key, { places: data[0], cursor, window, setCursor, onWindow })) event.preventDefault();
          }}
        >
          <Plot {...{ data, lines, window, height, format, cursor, onWindow }} x={options.x} log={options.log} onCursor={setCursor} onWidth={setWidth} />
        </div>
      )}
      <Legend {...{ series, hidden, toggle }} shownValues={values.map((value) => (value === undefined ? "" : format(value)))} />
      <p class="curve-notes">
        {at ?? NAMES[options.x]}
        {lost > 0 && `; ${lost} values that are not above 0 have no place on a logarithmic axis`}
        {zoom && (
          <button type="button" onClick={() => setZoom(null)}>
            Show all
          </button>
        )}
      </p>
      <CurveTable labels={series.map((each) => each.label)} columns={raw} kind={options.x} format={format} title={title} />
    </figure>
  );
}

function EmptyChart({ title }: { title: string }) {
  return (
    <figure class="curve" aria-label={shown(title)}>
      <figcaption>{shown(title)}</figcaption>
      <p class="quiet">No points yet.</p>
    </figure>
  );
}

interface LegendProps {
  series: readonly Series[];
  shownValues: readonly string[];
  hidden: ReadonlySet<string>;
  toggle: (label: string) => void;
}

function Legend({ series, shownValues, hidden, toggle }: LegendProps) {
  return (
    <ul class="legend">
      {series.map((each, i) => (
        <li key={each.label}>
          <button type="button" aria-pressed={!hidden.has(each.label)} onClick={() => toggle(each.label)}>
            <Swatch color={i} />
            {shown(each.label)}
          </button>
          <span class="value">{shownValues[i]}</span>
        </li>
      ))}
    </ul>
  );
}

/** A piece of a series' line. */
export function Swatch({ color }: { color: number }) {
  return (
    <svg class="swatch" width="22" height="10" aria-hidden="true">
      <line x1="1" y1="5" x2="21" y2="5" stroke={`var(${colorOf(color)})`} stroke-width="3" stroke-dasharray={dashesOf(color).join(" ")} />
    </svg>
  );
}

/** Return what is drawn of the visible series: behind a smoothed line the values themselves, faintly. */
function linesOf({ series, raw, drawn }: Drawn, visible: readonly number[], window: readonly [number, number], width: number, log: boolean) {
  const thin = (columns: Columns): Columns => picked(columns, thinned(columns, window[0], window[1], Math.max(50, width)));
  const behind = raw === drawn ? [] : visible;
  const data = aligned([...behind.map((i) => thin(raw[i]!)), ...visible.map((i) => thin(drawn[i]!))], log);
  const lines = [...behind.map((color) => ({ color, faint: true })), ...visible.map((color) => ({ color, style: series[color]!.style }))];
  return { data, lines };
}

function kindsOf(x: "step" | "time", charts: readonly (readonly Series[])[]): readonly XKind[] {
  if (x === "time") return ["time", "relative"];
  return charts.some((series) => series.some((each) => each.times)) ? ["step", "time", "relative"] : ["step"];
}

function valueAt({ x, y }: Columns, cursor: number | null): number | undefined {
  const index = cursor === null ? -1 : nearest(x, cursor);
  return index < 0 ? undefined : y[index];
}

function shownX(x: number, kind: XKind): string {
  if (kind === "relative") return elapsed(x);
  return kind === "time" ? time(x) : `step ${stepText(x)}`;
}

interface Keys {
  places: readonly number[];
  cursor: number | null;
  window: readonly [number, number];
  setCursor: (x: number | null) => void;
  onWindow: (window: [number, number] | null) => void;
}

/** Move the cursor, or zoom around it; return whether the key means something. */
function onKey(key: string, { places, cursor, window: [from, to], setCursor, onWindow }: Keys): boolean {
  const inside = places.filter((x) => x >= from && x <= to);
  const index = cursor === null ? -1 : nearest(inside, cursor);
  const last = inside.length - 1;
  const stride = Math.max(1, Math.round(inside.length / 10));
  const moves: Record<string, number> = {
    ArrowRight: index + 1,
    ArrowUp: index + 1,
    ArrowLeft: index - 1,
    ArrowDown: index - 1,
    PageUp: index + stride,
    PageDown: index - stride,
    Home: 0,
    End: last,
  };
  if (Object.hasOwn(moves, key)) {
    if (last >= 0) setCursor(inside[Math.min(last, Math.max(0, moves[key]!))]!);
    return true;
  }
  const center = cursor ?? (from + to) / 2;
  const half = (to - from) / 4;
  if (key === "+" || key === "=") onWindow([Math.max(from, center - half), Math.min(to, center + half)]);
  else if (key === "-" || key === "0") onWindow(null);
  else if (key === "Escape") setCursor(null);
  else return false;
  return true;
}

