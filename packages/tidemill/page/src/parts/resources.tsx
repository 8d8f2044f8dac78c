/** What the instances of a job or endpoint use: processors, memory, files, traffic and GPUs over time. */

import { useMemo } from "preact/hooks";

import { useLoaded } from "../loaded";
import { resourceCharts, type SampledInstance, type SampledKind } from "../resources";
import { call } from "../service";
import { CurveCharts } from "./curves";
import { Failure } from "./failure";

const SAMPLED_EVERY_MS = 10_000;

export interface ResourcesProps {
  kind: SampledKind;
  name: string;
  /** Whether there may be further samples. */
  isLive: boolean;
}

/** The curves of all instances, which grow while the job runs. */
export function Resources({ kind, name, isLive }: ResourcesProps) {
  const found = useLoaded(
    `${kind} ${name}`,
    async (signal) => {
      const answer = await call<{ Instances?: SampledInstance[] }>(
        "tidemill",
        "GetInstanceSamples",
        { Kind: kind, Name: name },
        { signal },
      );
      return answer.Instances ?? [];
    },
    { every: () => (isLive ? SAMPLED_EVERY_MS : undefined) },
  );
  const charts = useMemo(() => resourceCharts(found.value ?? []), [found.value]);
  if (found.error !== undefined && !found.value) return <Failure error={found.error} retry={found.reload} />;
  if (!found.value) return null;
  if (found.value.every((instance) => instance.TimesMs.length === 0)) {
    return <p class="quiet">{isLive ? "There is no sample yet: the first comes a second after the instance has started." : "There are no samples of its instances."}</p>;
  }
  return (
    <>
      <CurveCharts charts={charts} x="time" />
      <p class="quiet">
        A sample each ten seconds; older ones are merged. Memory and processors are those of the instance’s processes, files
        are what it has written.
      </p>
    </>
  );
}
