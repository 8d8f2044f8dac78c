/** A form that sends a request to an endpoint. Its fields are made from the signature; nothing runs before Send. */

import { useEffect, useState } from "preact/hooks";

import { servedModels, type Endpoint, type ModelSignature, type VariantInstances } from "../endpoint_calls";
import { useLoaded } from "../loaded";
import { sendAsync, sendRequest, type Answer } from "../model_request";
import { bodyOf, exampleOf, isBatched, tensorText } from "../request_body";
import { currentSession } from "../service";
import { shown } from "../shown_text";
import { AnswerOf } from "./model_answer";
import { Failure } from "./failure";

/** A server that has just begun tells its signature later. */
const AGAIN_MS = 5000;

interface FormProps {
  endpoint: Endpoint;
  variants: readonly VariantInstances[];
}

export function RequestForm({ endpoint, variants }: FormProps) {
  const [variant, setVariant] = useState("");
  const [target, setTarget] = useState("");
  const asked = variants.find((each) => each.VariantName === variant) ?? variants[0];
  const isMulti = asked?.MultiModel ?? false;
  // Another configuration may have another model; a server that starts anew must not take away what was typed.
  const models = useLoaded(
    `models ${endpoint.EndpointConfigName} ${variant} ${target}`,
    (signal) => (isMulti && !target ? Promise.resolve([]) : servedModels(endpoint.EndpointName, variant, target, { signal })),
    { every: (found) => (found.length || isMulti ? undefined : AGAIN_MS) },
  );
  const signatures = (models.value ?? []).flatMap((model) => model.Signatures.map((signature) => ({ model, signature })));
  const [chosen, setChosen] = useState(0);
  const predicts = signatures.filter(({ signature }) => signature.Method === "predict");
  const signature = (predicts[chosen] ?? predicts.find((each) => each.signature.Name === "serving_default") ?? predicts[0])?.signature;
  if (currentSession()?.readOnly) return <p class="quiet">A read-only session sends no requests.</p>;
  return (
    <>
      <div class="fields">
        {variants.length > 1 && (
          <label>
            Variant{" "}
            <select value={variant} onChange={(event) => setVariant(event.currentTarget.value)}>
              <option value="">by weight</option>
              {variants.map((each) => (
                <option key={each.VariantName} value={each.VariantName}>
                  {shown(each.VariantName)}
                </option>
              ))}
            </select>
          </label>
        )}
        {isMulti && (
          <label>
            Target model{" "}
            <input
              placeholder="digits.tar.gz"
              value={target}
              maxLength={1024}
              onChange={(event) => setTarget(event.currentTarget.value)}
            />
          </label>
        )}
        {predicts.length > 1 && (
          <label>
            Signature{" "}
            <select value={chosen} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
              {predicts.map((each, index) => (
                <option key={index} value={index}>
                  {shown(`${each.model.Name}: ${each.signature.Name}`)}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      {models.error !== undefined && (
        <>
          <p>The signature is not known, so the body has no fields.</p>
          <Failure error={models.error} retry={models.reload} />
        </>
      )}
      {models.value && !signature && <p class="quiet">{isMulti && !target ? "Name a target model." : noSignature(isMulti)}</p>}
      {models.value && (
        <Request
          key={`${signature?.Name} ${JSON.stringify(signature?.Inputs)}`}
          endpoint={endpoint}
          signature={signature}
          variant={variant}
          target={target}
        />
      )}
    </>
  );
}

function noSignature(isMulti: boolean): string {
  return isMulti
    ? "No server has loaded this model yet; after its first request its signature is known."
    : "No server tells a signature now.";
}

interface RequestProps {
  endpoint: Endpoint;
  signature: ModelSignature | undefined;
  variant: string;
  target: string;
}

function Request({ endpoint, signature, variant, target }: RequestProps) {
  const batched = signature !== undefined && isBatched(signature);
  const [texts, setTexts] = useState<Record<string, string>>(() =>
    Object.fromEntries((signature?.Inputs ?? []).map((input) => [input.Name, exampleOf(input, batched)])),
  );
  const [isRaw, setRaw] = useState(!signature);
  const [body, setBody] = useState("");
  const [contentType, setContentType] = useState("application/json");
  const [accept, setAccept] = useState("application/json");
  const [answer, setAnswer] = useState<Answer>();
  const [error, setError] = useState<unknown>();
  const [running, setRunning] = useState<AbortController>();
  useEffect(() => () => running?.abort(), [running]);

  const edit = (): void => {
    try {
      if (signature) setBody(bodyOf(signature, texts));
      setError(undefined);
      setRaw(true);
    } catch (reason) {
      setError(reason);
    }
  };
  const send = async (event: Event): Promise<void> => {
    event.preventDefault();
    const controller = new AbortController();
    setAnswer(undefined);
    setError(undefined);
    setRunning(controller);
    try {
      const content = isRaw || !signature ? body : bodyOf(signature, texts);
      const options = { contentType, accept, variant, targetModel: target, signal: controller.signal };
      const output = endpoint.AsyncInferenceConfig?.OutputConfig.S3OutputPath;
      const ask = output === undefined ? sendRequest : sendAsync(output);
      setAnswer(await ask(endpoint.EndpointName, content, options));
    } catch (reason) {
      if (!controller.signal.aborted) setError(reason);
    }
    setRunning(undefined);
  };
  return (
    <form class="request" onSubmit={(event) => void send(event)}>
      {!isRaw && signature && <Inputs signature={signature} texts={texts} onChange={setTexts} />}
      {isRaw && (
        <label class="field">
          Body
          <textarea rows={8} spellcheck={false} value={body} onInput={(event) => setBody(event.currentTarget.value)} />
        </label>
      )}
      <div class="fields">
        <label>
          Content type{" "}
          <input list="content-types" value={contentType} required onInput={(event) => setContentType(event.currentTarget.value)} />
        </label>
        <label>
          Accept <input list="content-types" value={accept} onInput={(event) => setAccept(event.currentTarget.value)} />
        </label>
        <datalist id="content-types">
          <option value="application/json" />
          <option value="application/jsonlines" />
          <option value="text/csv" />
        </datalist>
      </div>
      <p class="buttons">
        <button type="submit" class="primary" disabled={running !== undefined}>
          Send
        </button>{" "}
        {running && (
          <button type="button" onClick={() => running.abort()}>
            Stop waiting
          </button>
        )}
        {!isRaw && (
          <button type="button" onClick={edit}>
            Edit the body
          </button>
        )}
        {isRaw && signature && (
          <button type="button" onClick={() => setRaw(false)}>
            Back to the fields
          </button>
        )}
      </p>
      <div aria-live="polite">
        {running && <p>Waiting for the answer …</p>}
        {error !== undefined && <Failure error={error} />}
        {answer && <AnswerOf answer={answer} />}
      </div>
    </form>
  );
}

interface InputsProps {
  signature: ModelSignature;
  texts: Record<string, string>;
  onChange: (texts: Record<string, string>) => void;
}

function Inputs({ signature, texts, onChange }: InputsProps) {
  return (
    <>
      {isBatched(signature) && <p class="quiet">One example; &quot;Edit the body&quot; allows several.</p>}
      {signature.Inputs.map((input) => (
        <label class="field" key={input.Name}>
          {shown(input.Name)} <span class="quiet">({tensorText(input)})</span>
          <textarea
            rows={2}
            spellcheck={false}
            value={texts[input.Name] ?? ""}
            onInput={(event) => onChange({ ...texts, [input.Name]: event.currentTarget.value })}
          />
        </label>
      ))}
    </>
  );
}
