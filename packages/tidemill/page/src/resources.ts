/** What instances use over time, as curves: one chart for each measure, with the instances as its series. */

import { bytes, figure } from "./numbers";
import type { Series } from "./series";

export type SampledKind = "training-job" | "processing-job" | "transform-job" | "endpoint";

interface GpuColumns {
  Busy: number[];
  Memory: number[];
}

/** The samples of one instance, as `GetInstanceSamples` returns them. */
export interface SampledInstance {
  Host: string;
  Cpus?: number;
  MemoryBytes?: number;
  DiskBytes?: number;
  Network?: "instance" | "machine";
  Gpus?: { Name: string; MemoryBytes: number }[];
  TimesMs: number[];
  Cpu: number[];
  Memory: number[];
  Disk: number[];
  DiskRead: number[];
  DiskWritten: number[];
  NetworkReceived: number[];
  NetworkSent: number[];
  GpuSamples?: GpuColumns[];
}

export interface ResourceChart {
  title: string;
  series: Series[];
  format: (value: number) => string;
}

const percent = (value: number): string => `${figure(Math.round(value * 10) / 10)} %`;
const rate = (value: number): string => `${bytes(value)}/s`;

/** The charts of some instances; those of GPUs only if there are any. */
export function resourceCharts(instances: readonly SampledInstance[]): ResourceChart[] {
  const charts: ResourceChart[] = [
    { title: titled("Processors", instances, ({ Cpus }) => Cpus && `100 % each, ${Cpus} of them`), series: each(instances, "Cpu", 100), format: percent },
    { title: titled("Memory", instances, ({ MemoryBytes }) => MemoryBytes && `of ${bytes(MemoryBytes)}`), series: each(instances, "Memory"), format: bytes },
    { title: titled("Files", instances, ({ DiskBytes }) => DiskBytes && `of ${bytes(DiskBytes)}`), series: each(instances, "Disk"), format: bytes },
    { title: "Disk traffic", series: pairs(instances, "DiskRead", "read", "DiskWritten", "written"), format: rate },
    { title: networkTitle(instances), series: pairs(instances, "NetworkReceived", "received", "NetworkSent", "sent"), format: rate },
  ];
  const gpus = ofGpus(instances, (gpu) => gpu.Busy.map((busy) => busy * 100));
  if (gpus.length > 0) {
    charts.push({ title: "GPUs", series: gpus, format: percent });
    charts.push({ title: "GPU memory", series: ofGpus(instances, (gpu) => gpu.Memory), format: bytes });
  }
  return charts;
}

type Column = "Cpu" | "Memory" | "Disk" | "DiskRead" | "DiskWritten" | "NetworkReceived" | "NetworkSent";

function each(instances: readonly SampledInstance[], column: Column, factor = 1): Series[] {
  return instances.map((instance) => ({ label: instance.Host, points: points(instance.TimesMs, instance[column], factor) }));
}

function pairs(instances: readonly SampledInstance[], first: Column, firstName: string, second: Column, secondName: string): Series[] {
  return instances.flatMap((instance) => [
    { label: `${instance.Host} ${firstName}`, points: points(instance.TimesMs, instance[first]) },
    { label: `${instance.Host} ${secondName}`, points: points(instance.TimesMs, instance[second]) },
  ]);
}

function ofGpus(instances: readonly SampledInstance[], values: (gpu: GpuColumns) => number[]): Series[] {
  return instances.flatMap((instance) =>
    (instance.GpuSamples ?? []).map((gpu, number) => ({
      label: `${instance.Host} GPU ${number}`,
      points: points(instance.TimesMs, values(gpu)),
    })),
  );
}

function points(timesMs: readonly number[], values: readonly number[], factor = 1): [number, number][] {
  return timesMs.map((at, index) => [at / 1000, (values[index] ?? NaN) * factor]);
}

/** The title with what the figures are parts of, if that is the same for all instances. */
function titled(title: string, instances: readonly SampledInstance[], whole: (instance: SampledInstance) => string | 0 | undefined): string {
  const wholes = new Set(instances.map(whole));
  const [only] = wholes;
  return wholes.size === 1 && only ? `${title} (${only})` : title;
}

function networkTitle(instances: readonly SampledInstance[]): string {
  return instances.some(({ Network }) => Network === "machine") ? "Network of the whole machine" : "Network";
}
