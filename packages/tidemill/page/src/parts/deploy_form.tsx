import { useState } from "preact/hooks";

import { go, href } from "../location";
import { call, currentSession } from "../service";
import { Failure } from "./failure";

/** A form that serves an approved version by a new endpoint: a model, a configuration and the endpoint of one name. */
export function DeployForm({ arn, name }: { arn: string; name: string }) {
  const session = currentSession();
  const [endpoint, setEndpoint] = useState(name.replace("/", "-").slice(0, 63));
  const [type, setType] = useState("ml.m5.large");
  const [count, setCount] = useState(1);
  const [role, setRole] = useState(roleOf(session?.user ?? ""));
  const [error, setError] = useState<unknown>();
  const [isBusy, setIsBusy] = useState(false);
  if (session?.readOnly) return null;
  const deploy = async (): Promise<void> => {
    setError(undefined);
    setIsBusy(true);
    try {
      await serve({ arn, endpoint, role, type, count });
      go(href(["endpoints", endpoint]));
    } catch (reason) {
      setError(reason);
      setIsBusy(false);
    }
  };
  return (
    <details>
      <summary>Deploy</summary>
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          void deploy();
        }}
      >
        <label>
          Endpoint <input required value={endpoint} onInput={(event) => setEndpoint(event.currentTarget.value)} />
        </label>
        <label>
          Instance type <input required value={type} onInput={(event) => setType(event.currentTarget.value)} />
        </label>
        <label>
          Instances <input type="number" min={1} required value={Number.isNaN(count) ? "" : count} onInput={(event) => setCount(event.currentTarget.valueAsNumber)} />
        </label>
        <label>
          Role <input required size={44} value={role} onInput={(event) => setRole(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary" disabled={isBusy}>
          Deploy
        </button>
      </form>
      {error !== undefined && <Failure error={error} />}
    </details>
  );
}

interface Serving {
  arn: string;
  endpoint: string;
  role: string;
  type: string;
  count: number;
}

/** Create the three resources. If a later one is refused, those before are deleted, so that one can try again. */
async function serve({ arn, endpoint, role, type, count }: Serving): Promise<void> {
  const undo: (() => Promise<unknown>)[] = [];
  try {
    await call("sagemaker", "CreateModel", { ModelName: endpoint, ExecutionRoleArn: role, Containers: [{ ModelPackageName: arn }] });
    undo.push(() => call("sagemaker", "DeleteModel", { ModelName: endpoint }));
    const variant = { VariantName: "AllTraffic", ModelName: endpoint, InstanceType: type, InitialInstanceCount: count };
    await call("sagemaker", "CreateEndpointConfig", { EndpointConfigName: endpoint, ProductionVariants: [variant] });
    undo.push(() => call("sagemaker", "DeleteEndpointConfig", { EndpointConfigName: endpoint }));
    await call("sagemaker", "CreateEndpoint", { EndpointName: endpoint, EndpointConfigName: endpoint });
  } catch (error) {
    for (const each of undo.reverse()) await each().catch(() => undefined);
    throw error;
  }
}

/** Return the role of a session that has one, as `get_execution_role` of AWS's SDK does. */
function roleOf(user: string): string {
  const found = /^(arn:[^:]*):sts:([^:]*):(\d*):assumed-role\/([^/]+)/.exec(user);
  return found ? `${found[1]}:iam:${found[2]}:${found[3]}:role/${found[4]}` : "";
}
