/** Changes of an endpoint: another configuration, other weights and counts, and its end. */

import { useState } from "preact/hooks";

import { endpointConfigs, type Endpoint, type EndpointVariant } from "../endpoint_calls";
import { useLoaded } from "../loaded";
import { go, href } from "../location";
import { call, currentSession } from "../service";
import { shown } from "../shown_text";
import { Confirmed } from "./confirmed";
import { Failure } from "./failure";

interface ChangeProps {
  endpoint: Endpoint;
  onChange: () => void;
}

export function EndpointUpdate({ endpoint, onChange }: ChangeProps) {
  if (currentSession()?.readOnly) return null;
  const name = endpoint.EndpointName;
  const remove = async (): Promise<void> => {
    await call("sagemaker", "DeleteEndpoint", { EndpointName: name });
    go(href(["endpoints"]));
  };
  return (
    <section>
      <h2>Change</h2>
      {endpoint.EndpointStatus === "InService" && (
        <>
          <Configuration endpoint={endpoint} onChange={onChange} />
          <Capacity key={JSON.stringify(endpoint.ProductionVariants)} endpoint={endpoint} onChange={onChange} />
        </>
      )}
      {endpoint.EndpointStatus !== "Deleting" && (
        <p>
          <Confirmed label="Delete" question={`Delete the endpoint ${shown(name)}? Its requests fail from then on.`} run={remove} />
        </p>
      )}
    </section>
  );
}

function Configuration({ endpoint, onChange }: ChangeProps) {
  const configs = useLoaded("configs", (signal) => endpointConfigs({ signal }), { on: () => [{ kind: "endpoint-config" }] });
  const [chosen, setChosen] = useState("");
  const others = (configs.value ?? []).filter((each) => each !== endpoint.EndpointConfigName);
  const update = async (): Promise<void> => {
    await call("sagemaker", "UpdateEndpoint", { EndpointName: endpoint.EndpointName, EndpointConfigName: chosen });
    setChosen("");
    onChange();
  };
  return (
    <p class="inline-form">
      <label>
        Another configuration{" "}
        <select value={chosen} onChange={(event) => setChosen(event.currentTarget.value)}>
          <option value="">{others.length ? "choose" : "there is none"}</option>
          {others.map((each) => (
            <option key={each} value={each}>
              {shown(each)}
            </option>
          ))}
        </select>
      </label>
      {configs.error !== undefined && <Failure error={configs.error} />}
      {chosen && (
        <Confirmed
          label="Update"
          question={`Replace the servers by those of ${shown(chosen)}? The old ones answer until the new ones are ready.`}
          run={update}
        />
      )}
    </p>
  );
}

function Capacity({ endpoint, onChange }: ChangeProps) {
  const variants = (endpoint.ProductionVariants ?? []).filter((each) => !each.CurrentServerlessConfig);
  const [wanted, setWanted] = useState(() => variants.map((each) => [weightOf(each), countOf(each)] as const));
  const [error, setError] = useState<unknown>();
  if (!variants.length) return null;
  const change = (index: number, weight: string, count: string): void =>
    setWanted((all) => all.map((each, at) => (at === index ? ([weight, count] as const) : each)));
  const apply = async (event: Event): Promise<void> => {
    event.preventDefault();
    const DesiredWeightsAndCapacities = variants.map((each, index) => ({
      VariantName: each.VariantName,
      DesiredWeight: Number(wanted[index]?.[0]),
      DesiredInstanceCount: Number(wanted[index]?.[1]),
    }));
    try {
      const input = { EndpointName: endpoint.EndpointName, DesiredWeightsAndCapacities };
      await call("sagemaker", "UpdateEndpointWeightsAndCapacities", input);
      setError(undefined);
      onChange();
    } catch (reason) {
      setError(reason);
    }
  };
  return (
    <form onSubmit={(event) => void apply(event)}>
      {variants.map((each, index) => {
        const [weight, count] = wanted[index] ?? ["1", "1"];
        return (
          <fieldset class="fields" key={each.VariantName}>
            <legend>{shown(each.VariantName)}</legend>
            <label>
              Weight{" "}
              <input
                type="number"
                min="0"
                step="any"
                required
                value={weight}
                onInput={(event) => change(index, event.currentTarget.value, count)}
              />
            </label>
            <label>
              Instances{" "}
              <input
                type="number"
                min="1"
                required
                value={count}
                onInput={(event) => change(index, weight, event.currentTarget.value)}
              />
            </label>
          </fieldset>
        );
      })}
      <button type="submit">Change weights and instances</button>
      {error !== undefined && <Failure error={error} />}
    </form>
  );
}

function weightOf(variant: EndpointVariant): string {
  return String(variant.DesiredWeight ?? 1);
}

function countOf(variant: EndpointVariant): string {
  return String(variant.DesiredInstanceCount ?? 1);
}
