import { ServiceError } from "../service";
import { Text } from "./text";

/** An error, where its result would be. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const code = error instanceof ServiceError ? error.code : "";
  const message = error instanceof Error ? error.message : String(error);
  return (
    <div class="failure" role="alert">
      {code && <strong>{code}: </strong>}
      <Text value={message} lines />
      {retry && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}
