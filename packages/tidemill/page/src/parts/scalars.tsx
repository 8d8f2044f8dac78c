/** The scalars in a training job's event files, as TensorBoard shows them. */

import { useMemo, useState } from "preact/hooks";

import { useLoaded } from "../loaded";
import { matching, listScalars, pointsOf, scalarCharts, type Scalar } from "../scalars";
import { CurveCharts } from "./curves";
import { Failure } from "./failure";
import { Text } from "./text";

const LIVE_MS = 5000;
const READING_MS = 500;
const SHOWN_TAGS = 12;
const POINTS = 500;

/** Charts of the first tags, or of those that fit a text. */
export function Scalars({ job, isLive }: { job: string; isLive: boolean }) {
  const [text, setText] = useState("");
  const listed = useLoaded(`scalars ${job}`, (signal) => listScalars(job, { signal }), {
    every: (value) => (value.Complete ? (isLive ? LIVE_MS : undefined) : READING_MS),
  });
  if (listed.error !== undefined && !listed.value) return <Failure error={listed.error} retry={listed.reload} />;
  if (!listed.value || (listed.value.Scalars.length === 0 && listed.value.Complete && listed.value.Damage.length === 0)) return null;
  const { Scalars: scalars, Complete, Damage } = listed.value;
  const found = matching(scalars, text);
  const tags = [...found.keys()].slice(0, SHOWN_TAGS);
  return (
    <section aria-labelledby="scalars">
      <h2 id="scalars">TensorBoard</h2>
      {matching(scalars, "").size > SHOWN_TAGS && (
        <p>
          <label>
            Tags or runs with{" "}
            <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
          </label>{" "}
          <span class="quiet" aria-live="polite">
            {found.size > tags.length ? `${tags.length} of ${found.size} tags are shown` : `${found.size} tags`}
          </span>
        </p>
      )}
      <Points job={job} scalars={tags.flatMap((tag) => found.get(tag) ?? [])} />
      {!Complete && <p class="quiet">A large file is still being read.</p>}
      {Damage.length > 0 && (
        <p class="quiet">
          <Text value={Damage.join("\n")} lines />
        </p>
      )}
    </section>
  );
}

function Points({ job, scalars }: { job: string; scalars: readonly Scalar[] }) {
  // The points are loaded when there are further ones, or other tags.
  const key = `points ${job} ${JSON.stringify(scalars.map(({ Run, Tag }) => [Run, Tag]))}`;
  const counts = scalars.map(({ Count }) => Count).join();
  const [kept, setKept] = useState<{ key: string; charts: ReturnType<typeof scalarCharts> }>({ key: "", charts: [] });
  const loaded = useLoaded(`${key} ${counts}`, async (signal) => {
    if (scalars.length === 0) return [];
    const charts = scalarCharts((await pointsOf(job, scalars, POINTS, { signal })).Scalars);
    if (!signal.aborted) setKept({ key, charts });
    return charts;
  });
  const charts = useMemo(() => loaded.value ?? (kept.key === key ? kept.charts : []), [loaded.value, kept, key]);
  if (loaded.error !== undefined && charts.length === 0) return <Failure error={loaded.error} retry={loaded.reload} />;
  return charts.length > 0 ? <CurveCharts charts={charts} x="step" /> : null;
}
