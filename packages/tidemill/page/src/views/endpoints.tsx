/** All endpoints. */

import { useState } from "preact/hooks";

import { listEndpoints, type EndpointSummary } from "../endpoint_calls";
import { useLoaded } from "../loaded";
import { setQuery } from "../location";
import { time } from "../numbers";
import { Failure } from "../parts/failure";
import { Link } from "../parts/link";
import { State } from "../parts/state";
import type { ViewProps } from "../routes";
import { cutMiddle, shown } from "../shown_text";

export default function Endpoints({ query }: ViewProps) {
  const words = query.get("q") ?? "";
  const first = useLoaded(`endpoints ${words}`, (signal) => listEndpoints(words, undefined, { signal }), {
    on: () => [{ kind: "endpoint" }],
  });
  const [more, setMore] = useState<{ words: string; after: string; endpoints: EndpointSummary[]; next?: string | undefined }>();
  const [error, setError] = useState<unknown>();
  const further = more && more.words === words && more.after === first.value?.NextToken ? more : undefined;
  const next = further ? further.next : first.value?.NextToken;
  const load = async (token: string): Promise<void> => {
    try {
      const page = await listEndpoints(words, token);
      const endpoints = [...(further?.endpoints ?? []), ...page.Endpoints];
      setMore({ words, after: first.value?.NextToken ?? "", endpoints, next: page.NextToken });
      setError(undefined);
    } catch (reason) {
      setError(reason);
    }
  };
  const found = [...(first.value?.Endpoints ?? []), ...(further?.endpoints ?? [])];
  return (
    <>
      <h1>Endpoints</h1>
      <p class="inline-form">
        <label>
          Name has{" "}
          <input
            type="search"
            value={words}
            maxLength={63}
            onInput={(event) => setQuery({ q: event.currentTarget.value.replace(/[^a-zA-Z0-9-]/g, "") })}
          />
        </label>
      </p>
      {first.error !== undefined && <Failure error={first.error} retry={first.reload} />}
      {error !== undefined && <Failure error={error} />}
      {first.value && found.length === 0 && <p class="quiet">{words ? "No endpoint has such a name." : "There is no endpoint."}</p>}
      {found.length > 0 && <Rows endpoints={found} />}
      {next !== undefined && (
        <button type="button" onClick={() => void load(next)}>
          More endpoints
        </button>
      )}
    </>
  );
}

function Rows({ endpoints }: { endpoints: readonly EndpointSummary[] }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="Endpoints">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Status</th>
            <th scope="col">Created</th>
            <th scope="col">Changed</th>
          </tr>
        </thead>
        <tbody>
          {endpoints.map((each) => (
            <tr key={each.EndpointName}>
              <td>
                <Link to={["endpoints", each.EndpointName]}>{cutMiddle(shown(each.EndpointName), 80)}</Link>
              </td>
              <td>
                <State value={each.EndpointStatus} />
              </td>
              <td>{time(each.CreationTime)}</td>
              <td>{time(each.LastModifiedTime)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
