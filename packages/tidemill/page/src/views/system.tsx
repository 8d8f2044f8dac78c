/** The machine of the service: what runs and waits, its hardware, environments, versions, and the doctor. */

import { useState } from "preact/hooks";

import { useLoaded } from "../loaded";
import type { BuiltEnvironment, Finding, Machine, MachineShare } from "../machine";
import { bytes, duration, time } from "../numbers";
import { Failure } from "../parts/failure";
import { Figures } from "../parts/figures";
import { Link } from "../parts/link";
import { Meter } from "../parts/meter";
import { Text } from "../parts/text";
import { call } from "../service";
import { shown } from "../shown_text";

const AGAIN_MS = 5000;

export default function System() {
  const machine = useLoaded("machine", (signal) => call<Machine>("tidemill", "DescribeMachine", {}, { signal }), () => AGAIN_MS);
  return (
    <>
      <h1>System</h1>
      {machine.error !== undefined && <Failure error={machine.error} retry={machine.reload} />}
      {machine.value && (
        <>
          <Queue machine={machine.value} />
          <Hardware machine={machine.value} />
        </>
      )}
      <Environments />
      <Doctor />
      {machine.value && <Service machine={machine.value} />}
    </>
  );
}

function Queue({ machine }: { machine: Machine }) {
  const { Instances, FreeInstances, Gpus, SharesGpus } = machine.Capacity;
  return (
    <section>
      <h2>Queue</h2>
      <Figures
        entries={[
          ["Instances", `${FreeInstances} of ${Instances} free`],
          ["GPUs for jobs", Gpus ? `${Gpus}${SharesGpus ? ", which jobs may share" : ""}` : "none"],
        ]}
      />
      <Shares title="Running" shares={machine.Running} none="No job runs." />
      <Shares title="Waiting" shares={machine.Waiting} none="No job waits." isQueue />
    </section>
  );
}

interface SharesProps {
  title: string;
  shares: readonly MachineShare[];
  none: string;
  isQueue?: boolean;
}

function Shares({ title, shares, none, isQueue = false }: SharesProps) {
  return (
    <>
      <h3>{title}</h3>
      {shares.length === 0 && <p class="quiet">{none}</p>}
      {shares.length > 0 && (
        <div class="wide" tabIndex={0} role="region" aria-label={title}>
          <table class="plain">
            <thead>
              <tr>
                {isQueue && <th scope="col">Place</th>}
                <th scope="col">Job</th>
                <th scope="col">Kind</th>
                <th scope="col" class="numeric">
                  Instances
                </th>
                <th scope="col" class="numeric">
                  GPUs
                </th>
              </tr>
            </thead>
            <tbody>
              {shares.map((share, index) => (
                <tr key={index}>
                  {isQueue && <td>{index + 1}</td>}
                  <td>
                    {share.Name === undefined ? (
                      <span class="quiet">a job of somebody else</span>
                    ) : (
                      <Link to={["jobs", share.Kind, share.Name]}>{shown(share.Name)}</Link>
                    )}
                  </td>
                  <td>{share.Kind}</td>
                  <td class="numeric">{share.Instances}</td>
                  <td class="numeric">{share.Gpus}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function Hardware({ machine }: { machine: Machine }) {
  const { Cpus, Memory, Gpus, Disks } = machine;
  return (
    <section>
      <h2>Machine</h2>
      <Figures
        entries={[
          ["Host", shown(machine.HostName)],
          ["System", shown(machine.System)],
          ["Processors", String(Cpus.Count)],
          ["Load (1, 5, 15 min)", Cpus.LoadAverage.map((load) => load.toFixed(2)).join(", ")],
          ["Memory", <Meter label="Memory" used={Memory.TotalBytes - Memory.AvailableBytes} total={Memory.TotalBytes} />],
          ...Disks.map(
            (disk) =>
              [
                `Disk of ${disk.Name}`,
                <>
                  <Meter label={`Disk of ${disk.Name}`} used={disk.TotalBytes - disk.FreeBytes} total={disk.TotalBytes} />
                  <code>{shown(disk.Path)}</code>
                </>,
              ] as const,
          ),
        ]}
      />
      <h3>GPUs</h3>
      {Gpus.length === 0 && <p class="quiet">nvidia-smi lists none.</p>}
      {Gpus.length > 0 && (
        <ul>
          {Gpus.map((gpu) => (
            <li key={gpu.Uuid}>
              {shown(`${gpu.Index}: ${gpu.Name}, ${gpu.Memory}, driver ${gpu.Driver}`)} <code>{shown(gpu.Uuid)}</code>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Environments() {
  const listed = useLoaded("environments", (signal) =>
    call<{ Environments: BuiltEnvironment[] }>("tidemill", "ListEnvironments", {}, { signal }),
  );
  const found = listed.value?.Environments;
  return (
    <section aria-busy={!found && listed.error === undefined}>
      <h2>Environments</h2>
      {listed.error !== undefined && <Failure error={listed.error} retry={listed.reload} />}
      {!found && listed.error === undefined && <p role="status">Measuring the environments …</p>}
      {found?.length === 0 && <p class="quiet">None is built yet: the first job builds its own.</p>}
      {found && found.length > 0 && (
        <>
          <p class="quiet">Environments with the same base share most of their files, so the sizes overlap.</p>
          <div class="wide" tabIndex={0} role="region" aria-label="Environments">
            <table class="plain">
              <thead>
                <tr>
                  <th scope="col">Name</th>
                  <th scope="col">Framework</th>
                  <th scope="col">Python</th>
                  <th scope="col" class="numeric">
                    Size
                  </th>
                  <th scope="col">Last use</th>
                  <th scope="col">Key</th>
                </tr>
              </thead>
              <tbody>
                {found.map((each) => (
                  <tr key={each.Key}>
                    <td>{shown(each.Name)}</td>
                    <td>{shown(each.Framework ?? "")}</td>
                    <td>{shown(each.Python)}</td>
                    <td class="numeric">{bytes(each.SizeBytes)}</td>
                    <td>{time(each.LastUse)}</td>
                    <td title={shown(each.Path)}>
                      <code>{shown(each.Key)}</code>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </section>
  );
}

const LEVELS = { ok: ["good", "ok"], warn: ["warn", "warning"], fail: ["bad", "fails"] } as const;

/** The checks of `tidemill doctor`. They take seconds, so they run when they are asked for. */
function Doctor() {
  const [answer, setAnswer] = useState<{ Findings: Finding[]; Complete: boolean }>();
  const [error, setError] = useState<unknown>();
  const [isRunning, setRunning] = useState(false);
  const run = async (): Promise<void> => {
    setRunning(true);
    setError(undefined);
    try {
      setAnswer(await call("tidemill", "RunDoctor"));
    } catch (reason) {
      setError(reason);
    }
    setRunning(false);
  };
  return (
    <section aria-busy={isRunning}>
      <h2>Doctor</h2>
      <p>
        <button type="button" disabled={isRunning} onClick={() => void run()}>
          {answer ? "Check again" : "Check this machine"}
        </button>{" "}
        <span role="status">
          {isRunning && "Checking …"}
          {!isRunning && answer && summary(answer.Findings)}
        </span>
      </p>
      {error !== undefined && <Failure error={error} />}
      {answer && (
        <ul class="findings">
          {answer.Findings.map((each) => (
            <li key={each.Name}>
              <strong class={`status ${LEVELS[each.Level][0]}`}>{LEVELS[each.Level][1]}</strong> {shown(each.Name)}:{" "}
              <Text value={each.Text} />
              {each.Remedy && (
                <>
                  <br />
                  <span class="quiet">What to do:</span> <code>{shown(each.Remedy)}</code>
                </>
              )}
            </li>
          ))}
        </ul>
      )}
      {answer && !answer.Complete && <p class="reason">A check takes longer than a minute; it is left out.</p>}
    </section>
  );
}

function summary(findings: readonly Finding[]): string {
  const bad = findings.filter((each) => each.Level !== "ok").length;
  return bad ? `${bad} of ${findings.length} checks need attention.` : `All ${findings.length} checks are good.`;
}

function Service({ machine }: { machine: Machine }) {
  const { Service: service, Versions } = machine;
  const up = duration(Date.now() / 1000 - service.StartTime);
  return (
    <section>
      <h2>Service</h2>
      <Figures
        entries={[
          ["Address", shown(service.Url)],
          ...(service.PublicUrl ? [["For other machines", shown(service.PublicUrl)] as const] : []),
          ["Running for", up],
          ["Process", String(service.Pid)],
          ["Region", service.Region],
          ["Isolation", <Text value={`${service.Isolation} (${service.IsolationReason})`} />],
          ["Jobs run", service.Executor === "local" ? "on this machine" : `on ${service.Executor}`],
          ["Warm start", service.Warm ? "on" : "off"],
          ["State", <code>{shown(service.StateDir)}</code>],
        ]}
      />
      <h3>Versions</h3>
      <Figures entries={Versions.map((each) => [each.Name, shown(each.Version)] as const)} />
    </section>
  );
}
