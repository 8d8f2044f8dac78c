/** Lines on a canvas: uPlot, in the colors of the theme. */

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { axisTimes, elapsed, stepText } from "../axis_text";
import { logarithmic } from "../scales";
import type { Aligned, Series, XKind } from "../series";
import { useMatch } from "./width";

/** How one row of the data is drawn. `color` is the number of a series, which also chooses the dashes. */
export interface Line {
  color: number;
  faint?: boolean;
  style?: Series["style"];
}

export interface PlotProps {
  data: Aligned;
  lines: readonly Line[];
  x: XKind;
  log: boolean;
  /** First and last x that are shown. */
  window: readonly [number, number];
  height: number;
  format: (value: number) => string;
  /** The x of the cursor, or null without one. It is set here, and changed by the pointer. */
  cursor: number | null;
  onCursor: (x: number | null) => void;
  /** Called with the part that was dragged over, and with null for all. */
  onWindow: (window: [number, number] | null) => void;
  /** Called with the width in CSS pixels. */
  onWidth: (width: number) => void;
}

/** Number of colors in the stylesheet, `--series-1` and so on; further series repeat them with dashes. */
export const COLORS = 8;
const DASHES: readonly number[][] = [[], [10, 5], [2, 4], [10, 4, 2, 4]];

const STEPS = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();
const SECONDS = [0.001, 0.01, 0.1, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400];
const DAYS = [2, 5, 10, 30, 100, 365].map((days) => days * 86_400);

// uPlot's own ticks of a logarithmic axis never end where a power of ten has no exact form, e.g. 1e-30.
const LOG_TICKS: Pick<uPlot.Axis, "splits" | "filter"> = {
  splits: (_plot, _axis, low, high) => logarithmic(low, high),
  filter: (_plot, splits) => splits,
};

/** Return the dashes of a series in CSS pixels. */
export function dashesOf(color: number): readonly number[] {
  return DASHES[Math.floor(color / COLORS) % DASHES.length]!;
}

/** Return the name of the custom property that has the color of a series. */
export function colorOf(color: number): string {
  return `--series-${(color % COLORS) + 1}`;
}

export function Plot(props: PlotProps) {
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  // uPlot keeps the functions of its options, so they read what is current.
  const current = useRef(props);
  current.current = props;
  // The x that the pointer set last. uPlot calls for each change of its data, too, where the pointer has not moved.
  const pointed = useRef<number | null>(null);
  // The canvas is drawn again in the colors of another theme.
  const theme = useMatch("(prefers-color-scheme: dark)");
  const shape = JSON.stringify([props.lines, props.x, props.log, props.height]);

  useLayoutEffect(() => {
    const element = container.current!;
    const drawn = new uPlot(optionsOf(element, current, pointed), props.data as uPlot.AlignedData, element);
    plot.current = drawn;
    const observer = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (width && width !== drawn.width) drawn.setSize({ width, height: current.current.height });
      current.current.onWidth(width);
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current = null;
      drawn.destroy();
    };
  }, [shape, theme]);

  useEffect(() => {
    if (plot.current && plot.current.data !== (props.data as uPlot.AlignedData)) {
      plot.current.setData(props.data as uPlot.AlignedData);
    }
  }, [props.data, props.window]);

  useEffect(() => {
    if (plot.current && props.cursor !== pointed.current) showCursor(plot.current, props.cursor);
  }, [props.cursor, props.data, shape, theme]);

  return <div ref={container} class="plot" style={{ height: `${props.height}px` }} />;
}

function showCursor(plot: uPlot, x: number | null): void {
  const left = x === null ? -10 : plot.valToPos(x, "x");
  plot.setCursor({ left, top: x === null ? -10 : plot.height / 3 }, false);
}

function optionsOf(element: HTMLElement, current: { current: PlotProps }, pointed: { current: number | null }): uPlot.Options {
  const { lines, x, log, height } = current.current;
  const color = colorsOf(element);
  const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
  return {
    width: element.clientWidth || 300,
    height,
    legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 7 }, bind: { dblclick: showAll(current) } },
    scales: {
      x: { time: false, range: () => widened(current.current.window, x) },
      y: log ? { distr: 3, log: 10 } : { distr: 1 },
    },
    axes: [
      { ...axis, incrs: x === "step" ? STEPS : [...SECONDS, ...DAYS], values: (_, splits) => labelsOf(x, splits), space: 70 },
      { ...axis, ...(log ? LOG_TICKS : {}), size: 64, values: (_, splits) => splits.map((each) => (each == null ? "" : current.current.format(each))) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        stroke: color(colorOf(line.color)) + (line.faint ? "55" : ""),
        width: line.faint ? 1 : 1.75,
        dash: [...dashesOf(line.color)],
        points: { size: 5, fill: color("--ground"), ...shownPoints(line) },
        ...(line.style === "stepped" ? { paths: uPlot.paths.stepped!({ align: 1 }) } : {}),
        ...(line.style === "points" ? { paths: () => null } : {}),
      })) as uPlot.Series[],
    ],
    hooks: {
      setCursor: [
        (plot) => {
          const x = underPointer(plot);
          if (x !== pointed.current) current.current.onCursor((pointed.current = x));
        },
      ],
      setSelect: [(plot) => select(plot, current.current)],
    },
  };
}

/** Return a function that reads a color of the stylesheet as `#rrggbb`, to which an opacity can be added. */
function colorsOf(element: HTMLElement): (property: string) => string {
  const probe = element.ownerDocument.createElement("span");
  element.append(probe);
  const read = (property: string): string => {
    probe.style.color = `var(${property})`;
    const parts = getComputedStyle(probe).color.match(/[\d.]+/g) ?? [];
    return `#${parts.slice(0, 3).map((part) => Math.round(Number(part)).toString(16).padStart(2, "0")).join("")}`;
  };
  const known = new Map<string, string>();
  queueMicrotask(() => probe.remove());
  return (property) => {
    if (!known.has(property)) known.set(property, read(property));
    return known.get(property)!;
  };
}

/** Return whether points have marks; uPlot's default is where they are far enough from each other. */
function shownPoints(line: Line): { show?: boolean } {
  if (line.style === "points") return { show: true };
  return line.faint ? { show: false } : {};
}

function showAll(current: { current: PlotProps }): uPlot.Cursor.MouseListenerFactory {
  return () => () => {
    current.current.onWindow(null);
    return null;
  };
}

function underPointer(plot: uPlot): number | null {
  const { idx, left } = plot.cursor;
  return left == null || left < 0 || idx == null ? null : plot.data[0][idx]!;
}

function select(plot: uPlot, props: PlotProps): void {
  const { left, width } = plot.select;
  if (width < 3) return;
  props.onWindow([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

/** A window of one x has no width to draw in. */
function widened([from, to]: readonly [number, number], x: XKind): [number, number] {
  const margin = x === "step" ? 0.5 : 1;
  return to > from ? [from, to] : [from - margin, to + margin];
}

function labelsOf(x: XKind, splits: readonly number[]): string[] {
  if (x === "relative") return splits.map(elapsed);
  if (x === "step") return splits.map((each) => (Number.isInteger(each) ? stepText(each) : ""));
  return axisTimes(splits);
}
